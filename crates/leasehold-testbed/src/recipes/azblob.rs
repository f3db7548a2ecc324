//! Azure Blob Storage: Microsoft's emulator Azurite, with its well-known account and key.
//!
//! All data is in memory. A disk would make writes no safer, because Azurite finds them again only with an index that
//! it writes every few seconds. After a kill it is empty.

use std::ffi::OsString;
use std::io;

use crate::Missing;
use crate::recipe::{Member, Node, Recipe, command_line};
use crate::{probe, programs};

pub(crate) struct Azblob;

const PROGRAM: &str = "azblob/node_modules/azurite/dist/src/blob/main.js";
/// The well-known key of every Azurite, percent-encoded.
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq%2FK1SZFPTOtr%2FKBHBeksoGMGw%3D%3D";

impl Recipe for Azblob {
    fn name(&self) -> &'static str {
        "azblob"
    }

    fn installed(&self) -> Result<(), Missing> {
        programs::on_path("azblob", "node")?;
        programs::in_cache("azblob", PROGRAM).map(drop)
    }

    fn command(&self, node: &Node<'_>) -> Result<Vec<OsString>, Missing> {
        Ok(command_line![
            programs::on_path("azblob", "node")?,
            programs::in_cache("azblob", PROGRAM)?,
            "--silent",
            "--disableTelemetry",
            "--skipApiVersionCheck",
            "--blobHost",
            "127.0.0.1",
            "--blobPort",
            node.port().to_string(),
            "--inMemoryPersistence",
        ])
    }

    fn is_ready(&self, member: Member) -> io::Result<bool> {
        let answer = probe::http(member, "GET", "/devstoreaccount1?comp=list", "")?;
        Ok(answer.starts_with("HTTP/1.1 "))
    }

    fn url(&self, ports: &[u16]) -> String {
        let endpoint = format!("http://127.0.0.1:{}/devstoreaccount1", ports[0]);
        format!("azblob://devstoreaccount1/leases?endpoint={endpoint}&key={KEY}")
    }
}
