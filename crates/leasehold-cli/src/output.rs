//! Output: text for people, JSON for programs.
//!
//! Owners, bodies, states, reasons and the answers of a service are foreign text: other callers choose them. Everything
//! printed here escapes the characters of such text that a terminal would act on, hide or reorder.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::core::Time;
use serde::Serialize;

use crate::exit::Failure;

/// Prints lines to standard output. A closed pipe (`| head`) is not a failure.
///
/// Each line is escaped. Foreign text that may contain line breaks must be [`escaped`] before.
pub(crate) fn text(lines: &str) -> Result<(), Failure> {
    let escaped: Vec<_> = lines
        .trim_end_matches('\n')
        .split('\n')
        .map(escaped)
        .collect();
    raw(&escaped.join("\n")).map(drop)
}

/// Prints one line, escaped. Returns whether the reader still has the pipe open.
pub(crate) fn line(line: &str) -> Result<bool, Failure> {
    raw(&escaped(line))
}

/// Prints text of this program without escaping it. Returns whether the reader still has the pipe open.
pub(crate) fn raw(lines: &str) -> Result<bool, Failure> {
    let mut output = std::io::stdout().lock();
    let written = output
        .write_all(lines.as_bytes())
        .and_then(|()| {
            if lines.ends_with('\n') {
                Ok(())
            } else {
                output.write_all(b"\n")
            }
        })
        .and_then(|()| output.flush());
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::system("cannot write to standard output", error)),
    }
}

/// Prints one JSON value, on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value)
        .map_err(|error| Failure::system("cannot encode the result as JSON", error))?;
    self::line(&line).map(drop)
}

/// Returns the text with every hidden character, control characters and line breaks included, escaped as in JSON:
/// `\u001b`. A JSON text keeps its meaning.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match char {
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            hidden if is_hidden(hidden) => {
                for unit in hidden.encode_utf16(&mut [0; 2]) {
                    let _ = write!(escaped, "\\u{unit:04x}");
                }
            }
            other => escaped.push(other),
        }
    }
    escaped.into()
}

/// Returns whether a terminal would act on this character, hide it, or reorder its surroundings: control characters (C0,
/// DEL, C1), zero-width and bidirectional characters, and tags. The dashboard uses the same list.
fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Joins lines into one text, each line escaped.
pub(crate) fn joined(lines: &[String]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| escaped(line)).collect();
    lines.join("\n")
}

/// Whether to print results and errors only.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Suppresses notes and confirmations from now on.
pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints that an action succeeded, unless `--quiet` is given: the exit code says the same.
pub(crate) fn confirmation(lines: &str) -> Result<(), Failure> {
    if is_quiet() { Ok(()) } else { text(lines) }
}

/// Prints a message to standard error, unless `--quiet` is given.
pub(crate) fn note(line: &str) {
    if is_quiet() {
        return;
    }
    error(&format!("leasehold: {line}"));
}

/// Prints a line to standard error. A failure to do so is ignored: there is nowhere left to report it.
pub(crate) fn error(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", escaped(line));
}

/// Replaces the line that the previous call wrote on the terminal.
pub(crate) fn rewrite(line: &str) {
    let mut output = std::io::stderr().lock();
    let _ = write!(output, "\r\x1b[K{}", escaped(line)).and_then(|()| output.flush());
}

/// Formats a time of the store as RFC 3339, in UTC.
pub(crate) fn time(time: Time) -> String {
    i64::try_from(time.as_micros())
        .ok()
        .and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok())
        .unwrap_or(jiff::Timestamp::MAX)
        .to_string()
}

/// Formats a time of the store for people: without fractions of a second.
pub(crate) fn time_to_second(moment: Time) -> String {
    time(Time::from_micros(
        moment.as_micros() / 1_000_000 * 1_000_000,
    ))
}

/// Formats a duration for people: `850ms`, `12.3s`, `4m 05s`, `2h 10m`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{}ms", span.as_millis()),
        1..60 => format!("{}.{}s", seconds, span.subsec_millis() / 100),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats nanoseconds with three significant digits: `85ns`, `1.25µs`, `85.0ms`, `12.3s`.
pub(crate) fn precise(nanos: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000)];
    let Some((word, unit)) = units.into_iter().find(|(_, unit)| nanos >= *unit) else {
        return format!("{nanos}ns");
    };
    let number = nanos as f64 / unit as f64;
    let digits = match nanos / unit {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    format!("{number:.digits$}{word}")
}

/// Formats a number in groups of three digits: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Quotes a text as one shell word: for any POSIX shell, or for bash and zsh if it contains hidden characters.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else if text.contains(is_hidden) {
        let text = text.replace('\\', r"\\").replace('\'', r"\'");
        let shown: String = text
            .chars()
            .map(|c| {
                if is_hidden(c) {
                    format!("\\U{:08x}", u32::from(c))
                } else {
                    c.to_string()
                }
            })
            .collect();
        format!("$'{shown}'")
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped_and_json_keeps_its_meaning() {
        assert_eq!(escaped("plain ✓ 日本"), "plain ✓ 日本");
        assert_eq!(escaped("a\x1b[31m\r\n\tb"), r"a\u001b[31m\u000d\n\tb");
        assert_eq!(escaped("\u{7f}\u{9b}31m"), r"\u007f\u009b31m");
        assert_eq!(
            escaped("a\u{202e}b\u{200b}\u{e0041}"),
            r"a\u202eb\u200b\udb40\udc41"
        );
        let value = serde_json::json!({ "owner": "\u{1b}]0;x\u{7}\u{9d}\u{7f}\u{202e}\u{e0041}" });
        let text = value.to_string();
        let printed = escaped(&text);
        assert!(!printed.contains(is_hidden), "{printed}");
        let read: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn durations_are_formatted_for_people() {
        for (millis, text) in [
            (850, "850ms"),
            (12_345, "12.3s"),
            (245_000, "4m 05s"),
            (7_800_000, "2h 10m"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        for (nanos, text) in [
            (85, "85ns"),
            (1_250, "1.25µs"),
            (85_000_000, "85.0ms"),
            (999_700_000, "1000ms"),
            (12_345_678_901, "12.3s"),
        ] {
            assert_eq!(precise(nanos), text);
        }
        for (number, text) in [(0, "0"), (999, "999"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn text_that_a_shell_would_interpret_is_quoted() {
        assert_eq!(quoted("nightly/report-1"), "nightly/report-1");
        assert_eq!(quoted("it's #1"), r"'it'\''s #1'");
        assert_eq!(quoted("it's\u{202e}\\"), r"$'it\'s\U0000202e\\'");
    }
}
