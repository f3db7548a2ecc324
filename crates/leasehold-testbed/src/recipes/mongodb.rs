//! MongoDB as a replica set, which leases require even with a single member.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};

use crate::Missing;
use crate::recipe::{Member, Node, Recipe, command_line};
use crate::{probe, programs};

pub(crate) struct Mongodb;

const PROGRAM: &str = "mongodb/fiftyone/db/bin/mongod";

impl Recipe for Mongodb {
    fn name(&self) -> &'static str {
        "mongodb"
    }

    fn installed(&self) -> Result<(), Missing> {
        programs::in_cache("mongodb", PROGRAM).map(drop)
    }

    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing> {
        let mut command = command_line![
            programs::in_cache("mongodb", PROGRAM)?,
            "--bind_ip",
            "127.0.0.1",
            "--port",
            node.port().to_string(),
            "--dbpath",
            node.data,
            "--replSet",
            "rs0",
            "--nounixsocket",
            "--wiredTigerCacheSizeGB",
            "0.25",
        ];
        if let Some(files) = node.tls() {
            command.extend(command_line![
                "--tlsMode",
                "requireTLS",
                "--tlsCertificateKeyFile",
                files.both,
                "--tlsCAFile",
                files.authority,
                "--tlsAllowConnectionsWithoutCertificates",
            ]);
        }
        Ok(command)
    }

    /// Forms a replica set that detects the loss of its primary within two seconds.
    fn form(&self, members: &[Member]) -> io::Result<()> {
        let mut list = Document::default();
        for (index, member) in (0..).zip(members) {
            let host = format!("127.0.0.1:{}", member.port);
            let entry = Document::default().int("_id", index).text("host", &host);
            list = list.nested(DOCUMENT, &index.to_string(), entry);
        }
        let settings = Document::default()
            .int("electionTimeoutMillis", 2_000)
            .int("heartbeatIntervalMillis", 500);
        let config = Document::default()
            .text("_id", "rs0")
            .nested(ARRAY, "members", list)
            .nested(DOCUMENT, "settings", settings);
        let command = Document::default().nested(DOCUMENT, "replSetInitiate", config);
        let answer = run(members[0], command)?;
        let is_done = number(&answer, "ok") == Some(1.0);
        let was_done = text(&answer, "codeName").as_deref() == Some("AlreadyInitialized");
        if is_done || was_done {
            Ok(())
        } else {
            Err(io::Error::other(format!("{:?}", text(&answer, "errmsg"))))
        }
    }

    fn is_ready(&self, member: Member) -> io::Result<bool> {
        let hello = hello(member)?;
        Ok(is_true(&hello, "isWritablePrimary") || is_true(&hello, "secondary"))
    }

    fn url(&self, ports: &[u16]) -> String {
        let members: Vec<_> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        format!(
            "mongodb://{}/leasehold?replicaSet=rs0&collection=leases",
            members.join(",")
        )
    }

    fn leader(&self, members: &[Member]) -> io::Result<Option<usize>> {
        Ok(members.iter().position(|member| {
            hello(*member).is_ok_and(|hello| is_true(&hello, "isWritablePrimary"))
        }))
    }
}

fn hello(member: Member) -> io::Result<Vec<u8>> {
    run(member, Document::default().int("hello", 1))
}

/// Runs a command on the database `admin`, and returns the answer as BSON.
fn run(member: Member, command: Document) -> io::Result<Vec<u8>> {
    const OP_MSG: i32 = 2013;
    let body = command.text("$db", "admin").finish();
    let length = i32::try_from(16 + 4 + 1 + body.len()).expect("a short command");
    let mut message = Vec::new();
    for word in [length, 1, 0, OP_MSG, 0] {
        message.extend(word.to_le_bytes());
    }
    message.push(0);
    message.extend(body);

    let mut stream = probe::to(member)?;
    stream.write_all(&message)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u32::from_le_bytes(length).saturating_sub(4) as usize];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

const NUMBER: u8 = 0x01;
const TEXT: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;
const BOOLEAN: u8 = 0x08;
const INTEGER: u8 = 0x10;

/// The part of BSON that the setup needs, because a driver would be the largest dependency of this crate.
#[derive(Default)]
struct Document(Vec<u8>);

impl Document {
    fn key(&mut self, kind: u8, key: &str) {
        self.0.push(kind);
        self.0.extend(key.as_bytes());
        self.0.push(0);
    }

    fn int(mut self, key: &str, value: i32) -> Self {
        self.key(INTEGER, key);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn text(mut self, key: &str, value: &str) -> Self {
        self.key(TEXT, key);
        let length = i32::try_from(value.len() + 1).expect("a short text");
        self.0.extend(length.to_le_bytes());
        self.0.extend(value.as_bytes());
        self.0.push(0);
        self
    }

    fn nested(mut self, kind: u8, key: &str, value: Self) -> Self {
        self.key(kind, key);
        self.0.extend(value.finish());
        self
    }

    fn finish(self) -> Vec<u8> {
        let length = i32::try_from(4 + self.0.len() + 1).expect("a short document");
        [&length.to_le_bytes()[..], &self.0, &[0]].concat()
    }
}

/// Returns the bytes after the first key of this name and kind, at any depth.
fn after<'a>(bson: &'a [u8], kind: u8, key: &str) -> Option<&'a [u8]> {
    let pattern = [&[kind], key.as_bytes(), &[0]].concat();
    let at = bson
        .windows(pattern.len())
        .position(|window| window == pattern)?;
    Some(&bson[at + pattern.len()..])
}

fn is_true(bson: &[u8], key: &str) -> bool {
    after(bson, BOOLEAN, key).is_some_and(|rest| rest.first() == Some(&1))
}

fn number(bson: &[u8], key: &str) -> Option<f64> {
    let bytes = after(bson, NUMBER, key)?.first_chunk()?;
    Some(f64::from_le_bytes(*bytes))
}

fn text(bson: &[u8], key: &str) -> Option<String> {
    let rest = after(bson, TEXT, key)?.get(4..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}
