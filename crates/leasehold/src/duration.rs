//! Durations as text: `500ms`, `30s`, `5m`, `2h`, `1d`.

use std::time::Duration;

use leasehold_core::Invalid;

/// The units with their length in milliseconds, longest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 24 * 60 * 60 * 1_000),
    ("h", 60 * 60 * 1_000),
    ("m", 60 * 1_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Parses a duration, which is a whole number with a unit. Zero is accepted.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(leasehold::duration::parse("5m")?, Duration::from_secs(300));
/// assert!(leasehold::duration::parse("-5s").is_err());
/// assert!(leasehold::duration::parse("banana").is_err());
/// # Ok::<(), leasehold::core::Invalid>(())
/// ```
pub fn parse(text: &str) -> Result<Duration, Invalid> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(word, _)| *word == unit);
    let (Some((_, millis)), false) = (unit, number.is_empty()) else {
        return Err(Invalid::new(format!(
            "invalid duration `{}`: a whole number with a unit is required, such as `500ms`, `30s`, `5m`, `2h` or `1d`",
            shortened(text)
        )));
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*millis))
        .map(Duration::from_millis)
        .ok_or_else(|| {
            Invalid::new(format!(
                "invalid duration `{}`: it is too long: give a shorter one",
                shortened(text)
            ))
        })
}

/// Formats a duration for [`parse`], in the longest unit that divides it, rounded down to a millisecond.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(leasehold::duration::format(Duration::from_secs(90)), "90s");
/// assert_eq!(leasehold::duration::format(Duration::from_secs(7_200)), "2h");
/// ```
pub fn format(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let (word, unit) = UNITS
        .into_iter()
        .find(|(_, unit)| millis != 0 && millis.is_multiple_of(*unit))
        .unwrap_or(("s", 1_000));
    format!("{}{word}", millis / unit)
}

/// Shortens a text for an error message.
fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 20;
    let shown = text.chars().take(MAX_CHARS);
    let mut short: String = shown.flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_durations_can_be_parsed() {
        for millis in [
            0,
            1,
            999,
            1_000,
            30_000,
            90_000,
            3_600_000,
            86_400_000,
            u64::MAX,
        ] {
            let span = Duration::from_millis(millis);
            assert_eq!(parse(&format(span)).unwrap(), span, "{millis}");
        }
    }

    #[test]
    fn only_whole_numbers_with_a_unit_are_durations() {
        for bad in [
            "", "s", "30", "-5s", "+5s", "banana", "1.5h", "5 m", "5S", "1m30s", "٣s", "ms5",
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(
                error.contains("a whole number with a unit is required"),
                "{bad}: {error}"
            );
        }
        for huge in ["99999999999999999999s", "213503982335d"] {
            let error = parse(huge).unwrap_err().to_string();
            assert!(error.contains("too long"), "{huge}: {error}");
        }
    }
}
