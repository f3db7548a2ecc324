//! A scripted Cosmos DB server, for answers that no emulator gives.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// Returns status, additional headers (each with a line break) and body for a request, given its method and path, and
/// its headers in lower case; `None` for the answer of a valid, empty container.
pub(crate) type Script = fn(&str, &str) -> Option<(u16, &'static str, &'static str)>;

/// A valid account.
const ACCOUNT: &str = r#"{"enableMultipleWriteLocations":false,"readableLocations":[{}],"userConsistencyPolicy":{"defaultConsistencyLevel":"Session"}}"#;
/// A valid container.
const CONTAINER: &str = r#"{"partitionKey":{"paths":["/id"]}}"#;

/// Starts the server and returns its store URL. `date` is the `Date` header of its answers.
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

/// Answers until the client disconnects.
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
        let request = request.trim_end_matches(" http/1.1");
        let length = headers
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .and_then(|value| value.trim().parse().ok());
        reader.read_exact(&mut vec![0; length.unwrap_or(0)])?;
        let (status, more, body) = script(request, headers).unwrap_or(match request {
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
