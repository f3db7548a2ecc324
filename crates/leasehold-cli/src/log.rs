//! The log of `serve`, on standard error.

use std::io::{self, Write};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::exit::{Failure, USAGE};
use crate::output;

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Starts logging to standard error, down to this level.
pub(crate) fn start(format: Format, level: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(level)
        .map_err(|error| Failure::new(USAGE, format!("invalid --log-level: {error}")))?;
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

/// Escapes the control characters of log lines, because names, owners and errors of stores are foreign text. The log has
/// no colours, because they could not be distinguished from those of foreign text.
struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    /// Escapes and writes one line; the subscriber passes whole lines.
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

    /// A buffer that all clones write to.
    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn control_characters_of_foreign_text_are_escaped_in_the_log() {
        const HOSTILE: &str = "me\x1b[5m\x07\u{9b}2J\r\nINFO \u{202e}\u{7f}\0";
        for is_json in [false, true] {
            let written = SharedBuffer::default();
            let output = written.clone();
            let log = tracing_subscriber::fmt()
                .with_ansi(false)
                .with_writer(move || Escaping(output.clone()));
            let log_hostile_text = || {
                let span = tracing::info_span!("span", shown = %HOSTILE);
                let _entered = span.enter();
                tracing::info!(text = HOSTILE, shown = %HOSTILE, debug = ?HOSTILE, "{HOSTILE}");
            };
            if is_json {
                tracing::subscriber::with_default(log.json().finish(), log_hostile_text);
            } else {
                tracing::subscriber::with_default(log.finish(), log_hostile_text);
            }
            let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            let line = written.strip_suffix('\n').unwrap();
            let hidden = |char: char| char.is_control() || char == '\u{202e}';
            assert!(!line.contains(hidden), "{line:?}");
        }
    }
}
