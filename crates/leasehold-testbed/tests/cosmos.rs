//! The Cosmos DB emulator supports what leases require there: creation that conflicts with an earlier one,
//! replacement that conflicts with a later version, and a time in every answer.
#![cfg(feature = "cosmos")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use leasehold_testbed::Cosmos;

fn send_request(cosmos: &Cosmos, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", cosmos.port())).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: emulator\r\nconnection: close\r\ncontent-length: {length}\r\n\
         x-ms-documentdb-partitionkey: [\"a\"]\r\n{headers}\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_are_checked_and_every_answer_has_a_time() {
    let cosmos = Cosmos::start().await;
    let containers = "/dbs/leasehold/colls";
    let container = r#"{"id":"leases","partitionKey":{"paths":["/id"],"kind":"Hash","version":2}}"#;
    let created = send_request(&cosmos, "POST", containers, "", container);
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");

    let items = "/dbs/leasehold/colls/leases/docs";
    let first = send_request(&cosmos, "POST", items, "", r#"{"id":"a","n":1}"#);
    assert!(first.starts_with("HTTP/1.1 201"), "{first}");
    assert!(first.to_lowercase().contains("\r\ndate: "), "{first}");
    let second = send_request(&cosmos, "POST", items, "", r#"{"id":"a","n":2}"#);
    assert!(second.starts_with("HTTP/1.1 409"), "{second}");

    let item = "/dbs/leasehold/colls/leases/docs/a";
    let stale = "if-match: \"00000000-0000-0000-0000-000000000000\"\r\n";
    let replaced = send_request(&cosmos, "PUT", item, stale, r#"{"id":"a","n":3}"#);
    assert!(replaced.starts_with("HTTP/1.1 412"), "{replaced}");
    let read = send_request(&cosmos, "GET", item, "", "");
    assert!(read.contains(r#""n":1"#), "{read}");
}
