//! Probes whether servers are ready, in their own protocols and with timeouts.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::recipe::Member;
use crate::tls;

const TIMEOUT: Duration = Duration::from_secs(2);

/// A connection, encrypted or not.
pub(crate) trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// Connects to a port on loopback without TLS, also for protocols that start TLS later.
pub(crate) fn plain(port: u16) -> io::Result<TcpStream> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&at, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Connects to a server, with TLS if it requires that from the first byte.
pub(crate) fn to(member: Member) -> io::Result<Box<dyn Stream>> {
    let stream = plain(member.port)?;
    if !member.tls {
        return Ok(Box::new(stream));
    }
    let host = ServerName::try_from("localhost").expect("a host name");
    let session = ClientConnection::new(tls::client(), host).map_err(io::Error::other)?;
    Ok(Box::new(StreamOwned::new(session, stream)))
}

/// Sends a request, and returns the first bytes of the answer.
pub(crate) fn exchange<const N: usize>(
    mut stream: impl Stream,
    request: &[u8],
) -> io::Result<[u8; N]> {
    stream.write_all(request)?;
    let mut answer = [0; N];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// Sends an HTTP request, and returns the whole answer.
pub(crate) fn http(member: Member, method: &str, path: &str, body: &str) -> io::Result<String> {
    let mut stream = to(member)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        member.port,
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
