//! A scripted DynamoDB server, for answers that no emulator gives.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// Returns status and body for an operation; `None` for the answer of a valid table.
pub(crate) type Script = fn(&str) -> Option<(u16, &'static str)>;

/// Returns the description of a table, with an addition.
macro_rules! table {
    ($more:literal) => {
        concat!(
            r#"{"Table":{"TableStatus":"ACTIVE","KeySchema":[{"AttributeName":"id","KeyType":"HASH"}],"#,
            r#""GlobalSecondaryIndexes":[{"IndexName":"by_name","IndexStatus":"ACTIVE","KeySchema":["#,
            r#"{"AttributeName":"kind","KeyType":"HASH"},{"AttributeName":"name","KeyType":"RANGE"}]},"#,
            r#"{"IndexName":"by_state","IndexStatus":"ACTIVE","KeySchema":["#,
            r#"{"AttributeName":"queue","KeyType":"HASH"},{"AttributeName":"queued","KeyType":"RANGE"}]}]"#,
            $more,
            "}}"
        )
    };
}
pub(crate) use table;

/// A valid table of one region.
pub(crate) const VALID_TABLE: &str = table!("");

/// Starts the server and returns its store URL. `date` is the `Date` header of its answers.
pub(crate) fn scripted(date: &'static str, script: Script) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let date = Arc::<str>::from(date);
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let date = date.clone();
            std::thread::spawn(move || serve(connection, &date, script));
        }
    });
    format!("dynamodb://leasehold?region=us-east-1&endpoint=http://127.0.0.1:{port}")
}

/// Answers until the client disconnects.
fn serve(connection: TcpStream, date: &str, script: Script) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut connection = connection;
    loop {
        let (mut operation, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some((_, target)) = line.split_once("dynamodb_20120810.") {
                operation = target.to_owned();
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        let (status, body) = script(&operation).unwrap_or((
            200,
            match &*operation {
                "describetable" => VALID_TABLE,
                _ => "{}",
            },
        ));
        let length = body.len();
        write!(
            connection,
            "HTTP/1.1 {status} X\r\n{date}content-type: application/x-amz-json-1.0\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
    }
}
