//! PostgreSQL with a correct hand-written lock: an upsert of one row that counts a fence, and an update that frees the row
//! only for its holder. Prepared statements, one round trip each.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

use super::{nonce, unexpected};
use crate::load::Protocol;

/// The table of the locks.
const TABLE: &str = "create table if not exists locks (name text primary key, owner text not null, \
     fence bigint not null, expires timestamptz not null)";
const ACQUIRE: &str = "insert into locks as l (name, owner, fence, expires) \
     values ($1, $2, 1, now() + interval '30 s') on conflict (name) do update set owner = excluded.owner, \
     fence = l.fence + 1, expires = excluded.expires where l.expires < now() returning fence";
const RELEASE: &str =
    "update locks set expires = '-infinity' where name = $1 and fence = $2 returning fence";

/// A client of PostgreSQL.
#[derive(Default)]
pub(crate) struct Postgres {
    fence: String,
}

impl Protocol for Postgres {
    fn connect(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        let mut hello = Vec::from(196_608_i32.to_be_bytes());
        hello.extend(b"user\0postgres\0database\0leasehold\0\0");
        let mut out = Vec::from(length(hello.len()));
        out.extend(hello);
        stream.write_all(&out)?;
        wait_until_ready(stream)?;
        let mut out = Vec::new();
        // Concurrent `create table if not exists` statements conflict, so they are serialised.
        message(&mut out, b'Q', &[b"select pg_advisory_lock(1)\0"]);
        message(&mut out, b'Q', &[TABLE.as_bytes(), b"\0"]);
        message(&mut out, b'Q', &[b"select pg_advisory_unlock(1)\0"]);
        stream.write_all(&out)?;
        for _ in 0..3 {
            wait_until_ready(stream)?;
        }
        let mut out = Vec::new();
        message(
            &mut out,
            b'P',
            &[b"acquire\0", ACQUIRE.as_bytes(), b"\0\0\0"],
        );
        message(
            &mut out,
            b'P',
            &[b"release\0", RELEASE.as_bytes(), b"\0\0\0"],
        );
        message(&mut out, b'S', &[]);
        stream.write_all(&out)?;
        wait_until_ready(stream)
    }

    fn acquire(&mut self, name: &str, out: &mut Vec<u8>) {
        execute(out, b"acquire\0", [name, &nonce()]);
    }

    fn release(&mut self, name: &str, out: &mut Vec<u8>) {
        execute(out, b"release\0", [name, &self.fence]);
    }

    fn answer(&mut self, input: &[u8]) -> io::Result<Option<usize>> {
        let (mut at, mut rows) = (0, 0);
        while let Some((kind, body, next)) = next_message(input, at) {
            at = next;
            match kind {
                b'E' => return Err(unexpected(body)),
                b'D' => {
                    rows += 1;
                    // One column: the column count, its length, its text.
                    self.fence = String::from_utf8_lossy(&body[6..]).into_owned();
                }
                b'Z' if rows == 1 => return Ok(Some(at)),
                b'Z' => return Err(unexpected(b"the lock is held")),
                _ => {}
            }
        }
        Ok(None)
    }
}

fn length(of: usize) -> [u8; 4] {
    i32::try_from(of + 4).expect("a few bytes").to_be_bytes()
}

fn message(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    out.push(kind);
    out.extend(length(parts.iter().map(|part| part.len()).sum()));
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Binds two parameters, executes, and syncs.
fn execute(out: &mut Vec<u8>, statement: &[u8], parameters: [&str; 2]) {
    let [one, two] = parameters.map(str::as_bytes);
    let size = |text: &[u8]| i32::try_from(text.len()).expect("short").to_be_bytes();
    let (first, second) = (size(one), size(two));
    // The unnamed portal; text in, text out.
    let parts: [&[u8]; 8] = [
        b"\0",
        statement,
        b"\0\0\0\x02",
        &first,
        one,
        &second,
        two,
        b"\0\0",
    ];
    message(out, b'B', &parts);
    message(out, b'E', &[b"\0\0\0\0\0"]);
    message(out, b'S', &[]);
}

/// Returns kind and body of the message at an offset, and the offset of the next one.
fn next_message(input: &[u8], at: usize) -> Option<(u8, &[u8], usize)> {
    let header = input.get(at..at + 5)?;
    let length = u32::from_be_bytes(header[1..].try_into().ok()?) as usize;
    let end = at + 1 + length;
    Some((header[0], input.get(at + 5..end)?, end))
}

fn wait_until_ready(stream: &mut TcpStream) -> io::Result<()> {
    let mut header = [0; 5];
    loop {
        stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) - 4;
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body)?;
        match header[0] {
            b'Z' => return Ok(()),
            b'E' => return Err(unexpected(&body)),
            _ => {}
        }
    }
}
