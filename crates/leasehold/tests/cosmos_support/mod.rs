//! A Cosmos DB of a test's own making, for what no emulator does.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// What is answered to a request, by its method and path and by its headers in lower case: the status, more headers (each
/// with its line end), and the body. The others are answered as by a good container that is empty.
pub(crate) type Script = fn(&str, &str) -> Option<(u16, &'static str, &'static str)>;

/// A good account.
const ACCOUNT: &str = r#"{"enableMultipleWriteLocations":false,"readableLocations":[{}],"userConsistencyPolicy":{"defaultConsistencyLevel":"Session"}}"#;
/// A good container.
const CONTAINER: &str = r#"{"partitionKey":{"paths":["/id"]}}"#;

/// Starts it; its store URL. `date` is what its answers say.
pub(crate) fn scripted(date: &'static str, script: Script) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || serve(connection, date, script));
        }
    });
    // `c2VjcmV0` is "secret".
    format!("cosmos://emulator/d/c?endpoint=http://127.0.0.1:{port}&key=c2VjcmV0")
}

/// Answers until the client goes away.
fn serve(mut connection: TcpStream, date: &str, script: Script) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let head = head.to_ascii_lowercase();
        let (request, headers) = head.split_once("\r\n").unwrap_or_default();
        let asked = request.trim_end_matches(" http/1.1");
        let length = headers
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .and_then(|value| value.trim().parse().ok());
        reader.read_exact(&mut vec![0; length.unwrap_or(0)])?;
        let (status, more, body) = script(asked, headers).unwrap_or(match asked {
            "get /" => (200, "", ACCOUNT),
            "get /dbs/d/colls/c" => (200, "", CONTAINER),
            "get /dbs/d/colls/c/pkranges" => (200, "", r#"{"PartitionKeyRanges":[{"id":"0"}]}"#),
            "post /dbs/d/colls/c/docs" if headers.contains("isquery") => {
                (200, "", r#"{"Documents":[]}"#)
            }
            "post /dbs/d/colls/c/docs" => (201, "etag: \"1\"\r\n", ""),
            _ => (404, "", r#"{"message":"no such item"}"#),
        });
        let length = body.len();
        write!(
            connection,
            "HTTP/1.1 {status} X\r\n{date}{more}content-length: {length}\r\n\r\n{body}"
        )?;
    }
}
