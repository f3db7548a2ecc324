//! Asks servers, in their own protocols and with bounded patience, whether they are ready.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);

/// A connection to a port of loopback.
pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// The first bytes that a server says to this.
pub(crate) fn ask<const N: usize>(port: u16, question: &[u8]) -> io::Result<[u8; N]> {
    let mut stream = connect(port)?;
    stream.write_all(question)?;
    let mut answer = [0; N];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// What a server answers to an HTTP request, head and all.
pub(crate) fn http(port: u16, method: &str, path: &str, body: &str) -> io::Result<String> {
    let mut stream = connect(port)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
