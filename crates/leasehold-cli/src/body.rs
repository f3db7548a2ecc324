//! Bodies read from an argument, a file or a pipe.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use leasehold::core::limits;

use crate::exit::{Failure, USAGE};

/// Returns the body that an argument gives: its text, or standard input for `-`.
pub(crate) fn argument(text: &str) -> Result<String, Failure> {
    if text == "-" {
        standard_input()
    } else {
        Ok(text.to_owned())
    }
}

/// Reads a body from a file; `-` is standard input.
pub(crate) fn file(path: &Path) -> Result<String, Failure> {
    if path == Path::new("-") {
        return standard_input();
    }
    let what = path.display().to_string();
    match File::open(path) {
        Ok(file) => read(file, &what),
        Err(error) => Err(Failure::new(
            USAGE,
            format!("cannot read the body from {what}: {error}"),
        )),
    }
}

fn standard_input() -> Result<String, Failure> {
    read(std::io::stdin(), "standard input")
}

/// Reads at most one byte more than a body may have, which is enough to refuse a longer one.
fn read(from: impl Read, what: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(limits::MAX_BODY_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::system(&format!("cannot read the body from {what}"), error))?;
    text(bytes).map_err(|message| Failure::new(USAGE, message))
}

/// Converts bytes into a body; the error says why they cannot be one.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.len() > limits::MAX_BODY_BYTES {
        let most = limits::MAX_BODY_BYTES;
        return Err(format!(
            "the body is too long: it has more than {most} bytes"
        ));
    }
    String::from_utf8(bytes)
        .map_err(|_| "the body is not UTF-8: encode it, for example as base64".to_owned())
}
