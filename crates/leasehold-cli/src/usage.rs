//! Reports invalid arguments and ends the program.

use clap::error::ContextValue;

use crate::output;

/// Prints what clap reports (help, the version or an error), and ends the program.
///
/// An error repeats arguments, which may be foreign text, as in `… | xargs leasehold show`. If one contains hidden
/// characters, the whole error is escaped and printed without colours.
pub(crate) fn end(mut error: clap::Error) -> ! {
    let hidden: Vec<_> = error
        .context()
        .filter_map(|(kind, value)| Some((kind, escaped(value)?)))
        .collect();
    if hidden.is_empty() {
        error.exit();
    }
    for (kind, value) in hidden {
        error.insert(kind, value);
    }
    for line in error.render().to_string().trim_end().split('\n') {
        output::error(line);
    }
    std::process::exit(error.exit_code());
}

/// Returns the value with its hidden characters escaped; `None` if it has none.
fn escaped(value: &ContextValue) -> Option<ContextValue> {
    let escaped = |text: &String| output::escaped(text).into_owned();
    let escaped = match value {
        ContextValue::String(text) => ContextValue::String(escaped(text)),
        ContextValue::Strings(texts) => ContextValue::Strings(texts.iter().map(escaped).collect()),
        _ => return None,
    };
    (escaped != *value).then_some(escaped)
}
