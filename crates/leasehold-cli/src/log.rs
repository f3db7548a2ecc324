//! The log of `serve`, on standard error.

use std::io::{self, Write};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::exit::{Failure, USAGE};
use crate::output;

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Starts to write it, down to this level.
pub(crate) fn start(format: Format, level: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(level)
        .map_err(|error| Failure::new(USAGE, format!("--log-level: {error}")))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(|| Escaping(io::stderr()));
    match format {
        Format::Json => log.json().init(),
        Format::Text => log.init(),
    }
    Ok(())
}

/// Writes lines without control characters: names, owners and errors of stores are foreign text. Hence there are no colours,
/// which could not be told from those of such text.
struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    /// Gets whole lines.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let escaped = output::escaped(text);
        self.0.write_all(format!("{escaped}\n").as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What is written through all clones.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn foreign_text_has_no_control_characters_in_the_log() {
        const HOSTILE: &str = "me\x1b[5m\x07\u{9b}2J\r\nINFO \u{202e}\u{7f}\0";
        for is_json in [false, true] {
            let written = Written::default();
            let output = written.clone();
            let log = tracing_subscriber::fmt()
                .with_ansi(false)
                .with_writer(move || Escaping(output.clone()));
            let tell = || {
                let span = tracing::info_span!("span", shown = %HOSTILE);
                let _entered = span.enter();
                tracing::info!(text = HOSTILE, shown = %HOSTILE, debug = ?HOSTILE, "{HOSTILE}");
            };
            if is_json {
                tracing::subscriber::with_default(log.json().finish(), tell);
            } else {
                tracing::subscriber::with_default(log.finish(), tell);
            }
            let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            let line = written.strip_suffix('\n').unwrap();
            let hidden = |char: char| char.is_control() || char == '\u{202e}';
            assert!(!line.contains(hidden), "{line:?}");
        }
    }
}
