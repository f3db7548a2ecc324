//! The configuration file of `leasehold serve --config`: its keys are the options of `serve`.
//!
//! Options of the file are appended to the command line unless it or the environment gives them. So options, their meaning
//! and their defaults are defined once, and an invalid value in the file is reported like one on the command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use leasehold::store::redacted;
use toml_edit::{DocumentMut, Item, Value};

use crate::arguments::Arguments;
use crate::exit::{Failure, USAGE};
use crate::usage;

/// Options that a file cannot set, because they concern a single invocation.
const EXCLUDED: [&str; 6] = [
    "config",
    "print_config",
    "help",
    "version",
    "token",
    "quiet",
];

/// Parses the command line, and for `serve` its configuration file.
pub(crate) fn arguments(words: Vec<OsString>) -> Result<Arguments, Failure> {
    let matches = Arguments::command()
        .try_get_matches_from(&words)
        .unwrap_or_else(|error| usage::end(error));
    let (matches, file) = match matches.subcommand() {
        Some(("serve", serve)) => match serve.get_one::<PathBuf>("config") {
            Some(path) => {
                let options = file_options(path, serve)?;
                let matches = merge(&words, &options, path)?;
                (matches, options)
            }
            None => (matches, Vec::new()),
        },
        _ => (matches, Vec::new()),
    };
    let mut arguments = Arguments::from_arg_matches(&matches)
        .map_err(|error| Failure::new(USAGE, error.to_string()))?;
    if let (crate::arguments::Command::Serve(serve), Some(("serve", matches))) =
        (&mut arguments.command, matches.subcommand())
        && serve.print_config
    {
        serve.effective = effective(matches, &file);
    }
    Ok(arguments)
}

/// An option of the file, as a word of the command line.
struct FileOption {
    key: String,
    word: OsString,
}

/// Returns the options that the file adds to the command line.
fn file_options(path: &Path, serve: &ArgMatches) -> Result<Vec<FileOption>, Failure> {
    let invalid = |why: String| invalid_file(path, &why);
    let text = std::fs::read_to_string(path).map_err(|error| {
        let path = path.display();
        Failure::new(
            USAGE,
            format!("cannot read --config from `{path}`: {error}"),
        )
    })?;
    let document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| invalid(error.to_string()))?;
    let command = serve_command();
    let mut options = Vec::new();
    for (key, item) in document.iter() {
        let id = key.replace('-', "_");
        let is_known = keys(&command).any(|known| known == key);
        if !is_known {
            return Err(invalid(unknown_key(key, &command)));
        }
        if matches!(
            serve.value_source(&id),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        ) {
            continue;
        }
        for word in words(key, item, &command).map_err(&invalid)? {
            let key = key.to_owned();
            options.push(FileOption { key, word });
        }
    }
    Ok(options)
}

fn invalid_file(path: &Path, why: &str) -> Failure {
    let path = path.display();
    Failure::new(USAGE, format!("invalid configuration file `{path}`: {why}"))
}

/// Parses the command line together with the options of the file.
fn merge(words: &[OsString], options: &[FileOption], path: &Path) -> Result<ArgMatches, Failure> {
    let options = options.iter().map(|option| &option.word);
    let all = words.iter().chain(options);
    Arguments::command()
        .try_get_matches_from(all)
        .map_err(|error| {
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default();
            invalid_file(path, first.strip_prefix("error: ").unwrap_or(first))
        })
}

/// Converts an option into words: a list repeats the option, `false` omits it.
fn words(key: &str, item: &Item, command: &Command) -> Result<Vec<OsString>, String> {
    let is_flag = is_flag(key, command);
    let value = item
        .as_value()
        .ok_or_else(|| format!("`{key}` is a table: give a single value"))?;
    let values = match value {
        Value::Array(array) => array.iter().collect(),
        value => vec![value],
    };
    let mut words = Vec::new();
    for value in values {
        let text = match value {
            Value::Boolean(on) if is_flag => {
                if *on.value() {
                    words.push(format!("--{key}").into());
                }
                continue;
            }
            _ if is_flag => return Err(format!("`{key}` must be `true` or `false`")),
            Value::String(text) => text.value().clone(),
            Value::Integer(number) => number.value().to_string(),
            _ => return Err(format!("`{key}` must be a string or a whole number")),
        };
        words.push(format!("--{key}={text}").into());
    }
    Ok(words)
}

fn is_flag(key: &str, command: &Command) -> bool {
    let mut arguments = command.get_arguments();
    let argument = arguments.find(|argument| argument.get_long() == Some(key));
    argument.is_some_and(|argument| matches!(argument.get_action(), ArgAction::SetTrue))
}

fn serve_command() -> Command {
    let mut command = Arguments::command();
    // Adds the global options to the subcommands.
    command.build();
    let serve = command.find_subcommand("serve");
    serve.expect("`serve` is a command").clone()
}

fn keys(command: &Command) -> impl Iterator<Item = &str> {
    let options = command.get_arguments();
    let options = options.filter(|argument| !EXCLUDED.contains(&argument.get_id().as_str()));
    options.filter_map(|argument| argument.get_long())
}

/// Returns the message for an unknown key: it suggests a similar one, or else lists all.
fn unknown_key(key: &str, command: &Command) -> String {
    let nearest = keys(command).min_by_key(|known| distance(key, known));
    match nearest.filter(|known| distance(key, known) <= 1 + known.len() / 3) {
        Some(nearest) => format!("unknown key `{key}` (did you mean `{nearest}`?)"),
        None => {
            let all: Vec<_> = keys(command).collect();
            format!("unknown key `{key}`: the keys are `{}`", all.join("`, `"))
        }
    }
}

/// Returns the Levenshtein distance between two words.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for column in 0..to.len() {
            let changed = diagonal + usize::from(letter != to[column]);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

/// Returns every option with its effective value and source, as a valid configuration file.
fn effective(serve: &ArgMatches, file: &[FileOption]) -> String {
    let command = serve_command();
    let mut lines = String::new();
    for key in keys(&command) {
        let id = key.replace('-', "_");
        let source = match serve.value_source(&id) {
            _ if file.iter().any(|option| option.key == key) => "file",
            Some(ValueSource::CommandLine) => "command line",
            Some(ValueSource::EnvVariable) => "environment",
            _ => "default",
        };
        let line = match value(key, &id, serve, &command) {
            // Redacted, so it is commented out.
            Some((value, false)) => format!("# {key} = {value}"),
            Some((value, true)) => format!("{key} = {value}"),
            None => format!("# {key} is not set"),
        };
        lines += &format!("{line:<48} # {source}\n");
    }
    lines
}

/// Returns the value of an option, and whether it is complete: secrets are redacted.
fn value(key: &str, id: &str, serve: &ArgMatches, command: &Command) -> Option<(Value, bool)> {
    if is_flag(key, command) {
        return Some((serve.get_flag(id).into(), true));
    }
    let raw = serve.get_raw(id)?;
    let raw: Vec<_> = raw.map(|raw| raw.to_string_lossy().into_owned()).collect();
    let texts: Vec<_> = raw.iter().map(|text| redact(id, text)).collect();
    let value = match &*texts {
        [] => return None,
        [only] => match only.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => only.as_str().into(),
        },
        _ => Value::Array(texts.iter().map(String::as_str).collect()),
    };
    Some((value, texts == raw))
}

/// Returns the value of an option without its secrets.
fn redact(id: &str, text: &str) -> String {
    match id {
        // Only the path of a file.
        "store" if text.starts_with('@') => text.to_owned(),
        // The rest of the URL may contain a secret.
        "store" => format!("{}:…", crate::store::scheme(text)),
        "otlp_endpoint" => redacted(text),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("lisen", "listen"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("acb", "abc"), 2);
    }
}
