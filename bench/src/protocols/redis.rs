//! Redis with a correct hand-written lock: a script that sets a key with an expiry and counts a fence, and a script that
//! deletes the key only for its holder.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use super::{nonce, unexpected};
use crate::load::Protocol;

/// Keys: the lock, its fence. Arguments: nonce, ttl in milliseconds.
pub(crate) const ACQUIRE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
     return redis.call('INCR', KEYS[2]) else return 0 end";
/// Key: the lock. Argument: nonce.
pub(crate) const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// A client of Redis.
#[derive(Default)]
pub(crate) struct Redis {
    acquire: String,
    release: String,
    nonce: String,
}

impl Protocol for Redis {
    fn connect(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        self.acquire = load(stream, ACQUIRE)?;
        self.release = load(stream, RELEASE)?;
        Ok(())
    }

    fn acquire(&mut self, name: &str, out: &mut Vec<u8>) {
        self.nonce = nonce();
        let (sha, nonce) = (&self.acquire, &self.nonce);
        let (lock, fence) = (name.len() + 2, name.len() + 2);
        let _ = write!(
            out,
            "*7\r\n$7\r\nEVALSHA\r\n$40\r\n{sha}\r\n$1\r\n2\r\n${lock}\r\nl:{name}\r\n${fence}\r\nf:{name}\r\n${}\r\n{nonce}\r\n$5\r\n30000\r\n",
            nonce.len(),
        );
    }

    fn release(&mut self, name: &str, out: &mut Vec<u8>) {
        let (sha, nonce) = (&self.release, &self.nonce);
        let _ = write!(
            out,
            "*5\r\n$7\r\nEVALSHA\r\n$40\r\n{sha}\r\n$1\r\n1\r\n${}\r\nl:{name}\r\n${}\r\n{nonce}\r\n",
            name.len() + 2,
            nonce.len(),
        );
    }

    fn answer(&mut self, input: &[u8]) -> io::Result<Option<usize>> {
        if !input.ends_with(b"\r\n") {
            return Ok(None);
        }
        if input[0] != b':' || input == b":0\r\n" {
            return Err(unexpected(input));
        }
        Ok(Some(input.len()))
    }
}

fn load(stream: &mut TcpStream, script: &str) -> io::Result<String> {
    let length = script.len();
    write!(
        stream,
        "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${length}\r\n{script}\r\n"
    )?;
    // `$40`, the digest, and the line breaks after both.
    let mut answer = [0; 47];
    stream.read_exact(&mut answer)?;
    String::from_utf8(answer[5..45].to_vec()).map_err(|_| unexpected(&answer))
}
