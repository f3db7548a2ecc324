//! The Leasehold service: HTTP/1.1 with keep-alive.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use super::{nonce, unexpected};
use crate::load::Protocol;

/// A client of the service.
#[derive(Default)]
pub(crate) struct Http {
    fence: String,
    /// The number of waiters of the lock that was shown last.
    pub(crate) waiters: usize,
}

impl Http {
    /// Writes a request for a lock that waits for at most these seconds.
    pub(crate) fn acquire_waiting(name: &str, seconds: u32, ttl: &str, out: &mut Vec<u8>) {
        let nonce = nonce();
        let _ = write!(
            out,
            "POST /locks/{name}?nonce={nonce}&ttl={ttl}&wait={seconds}s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
        );
    }

    /// Writes a request that shows a lock.
    pub(crate) fn show(name: &str, out: &mut Vec<u8>) {
        let _ = write!(out, "GET /locks/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }

    /// Writes a heartbeat for the lock that was acquired last.
    pub(crate) fn heartbeat(&self, name: &str, out: &mut Vec<u8>) {
        let fence = &self.fence;
        let _ = write!(
            out,
            "POST /locks/{name}/{fence}/heartbeat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
        );
    }

    /// Reads one response.
    pub(crate) fn read(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        let mut input = vec![0; 4096];
        let mut filled = 0;
        loop {
            let read = stream.read(&mut input[filled..])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            if self.answer(&input[..filled])?.is_some() {
                let waiters = after(&input[..filled], b"\"waiters\":");
                self.waiters = waiters.map_or(0, |count| count.parse().unwrap_or(0));
                return Ok(());
            }
        }
    }
}

impl Protocol for Http {
    fn connect(&mut self, _: &mut TcpStream) -> io::Result<()> {
        Ok(())
    }

    fn acquire(&mut self, name: &str, out: &mut Vec<u8>) {
        let nonce = nonce();
        let _ = write!(
            out,
            "POST /locks/{name}?nonce={nonce}&ttl=30s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
        );
    }

    fn release(&mut self, name: &str, out: &mut Vec<u8>) {
        let fence = &self.fence;
        let _ = write!(
            out,
            "DELETE /locks/{name}/{fence} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        );
    }

    fn answer(&mut self, input: &[u8]) -> io::Result<Option<usize>> {
        let Some(head) = find(input, b"\r\n\r\n") else {
            return Ok(None);
        };
        if !input.starts_with(b"HTTP/1.1 200") {
            return Err(unexpected(input));
        }
        let length = after(&input[..head], b"content-length: ").ok_or_else(|| unexpected(input))?;
        let length: usize = length.parse().map_err(|_| unexpected(input))?;
        let end = head + 4 + length;
        if input.len() < end {
            return Ok(None);
        }
        let body = &input[head + 4..end];
        if let Some(fence) = after(body, b"\"fence\":") {
            self.fence.clear();
            self.fence.push_str(fence);
        } else if find(body, b"\"released\":true").is_none() {
            return Err(unexpected(body));
        }
        Ok(Some(end))
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Returns the digits after a key.
fn after<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a str> {
    let digits = &text[find(text, key)? + key.len()..];
    let end = digits
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()
}
