//! The file that `leasehold serve --config` reads: every option of `serve` is a key of it.
//!
//! What stands in the file is added to the command line where neither that nor the environment has the option. So there
//! is one place that knows the options, their meaning and their defaults, and a wrong value in the file is explained
//! like one that was typed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use leasehold::store::redacted;
use toml_edit::{DocumentMut, Item, Value};

use crate::arguments::Arguments;
use crate::exit::{Failure, USAGE};
use crate::usage;

/// Options that a file cannot have: what is about this call only.
const NOT_HERE: [&str; 5] = ["config", "print_config", "help", "version", "token"];

/// Reads the command line, and for `serve` the file that it names.
pub(crate) fn arguments(words: Vec<OsString>) -> Result<Arguments, Failure> {
    let matches = Arguments::command()
        .try_get_matches_from(&words)
        .unwrap_or_else(|error| usage::end(error));
    let (matches, file) = match matches.subcommand() {
        Some(("serve", serve)) => match serve.get_one::<PathBuf>("config") {
            Some(path) => {
                let added = added(path, serve)?;
                let matches = with(&words, &added, path)?;
                (matches, added)
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

/// An option of the file, as it is written on a command line.
struct Added {
    key: String,
    word: OsString,
}

/// What the file adds to the command line.
fn added(path: &Path, serve: &ArgMatches) -> Result<Vec<Added>, Failure> {
    let wrong = |why: String| Failure::new(USAGE, format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| wrong(error.to_string()))?;
    let command = serve_command();
    let mut added = Vec::new();
    for (key, item) in document.iter() {
        let id = key.replace('-', "_");
        let known = keys(&command).any(|known| known == key);
        if !known {
            return Err(wrong(unknown(key, &command)));
        }
        if matches!(
            serve.value_source(&id),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        ) {
            continue;
        }
        for word in words(key, item, &command).map_err(&wrong)? {
            let key = key.to_owned();
            added.push(Added { key, word });
        }
    }
    Ok(added)
}

/// The command line with what the file adds.
fn with(words: &[OsString], added: &[Added], path: &Path) -> Result<ArgMatches, Failure> {
    let added = added.iter().map(|added| &added.word);
    let all = words.iter().chain(added);
    Arguments::command()
        .try_get_matches_from(all)
        .map_err(|error| {
            let told = error.to_string();
            let first = told.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            Failure::new(USAGE, format!("{}: {first}", path.display()))
        })
}

/// An option as words: a list is the option several times, `false` is the option not at all.
fn words(key: &str, item: &Item, command: &Command) -> Result<Vec<OsString>, String> {
    let flag = is_flag(key, command);
    let value = item
        .as_value()
        .ok_or_else(|| format!("`{key}` is a table: give a value"))?;
    let values = match value {
        Value::Array(array) => array.iter().collect(),
        value => vec![value],
    };
    let mut words = Vec::new();
    for value in values {
        let text = match value {
            Value::Boolean(on) if flag => {
                if *on.value() {
                    words.push(format!("--{key}").into());
                }
                continue;
            }
            _ if flag => return Err(format!("`{key}` is `true` or `false`")),
            Value::String(text) => text.value().clone(),
            Value::Integer(number) => number.value().to_string(),
            _ => return Err(format!("`{key}` is neither text nor a whole number")),
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
    // Now the commands get the options that they all have.
    command.build();
    let serve = command.find_subcommand("serve");
    serve.expect("there is such a command").clone()
}

fn keys(command: &Command) -> impl Iterator<Item = &str> {
    let options = command.get_arguments();
    let options = options.filter(|argument| !NOT_HERE.contains(&argument.get_id().as_str()));
    options.filter_map(|argument| argument.get_long())
}

/// There is no such key: perhaps the nearest one was meant.
fn unknown(key: &str, command: &Command) -> String {
    let nearest = keys(command).min_by_key(|known| distance(key, known));
    match nearest.filter(|known| distance(key, known) <= 1 + known.len() / 3) {
        Some(nearest) => format!("there is no `{key}`: did you mean `{nearest}`?"),
        None => {
            let all: Vec<_> = keys(command).collect();
            format!("there is no `{key}`: there is `{}`", all.join("`, `"))
        }
    }
}

/// How many letters must be changed, added or left out to get from one word to the other.
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

/// Every option as it stands, and where it comes from, as a file that could be read again.
fn effective(serve: &ArgMatches, file: &[Added]) -> String {
    let command = serve_command();
    let mut lines = String::new();
    for key in keys(&command) {
        let id = key.replace('-', "_");
        let source = match serve.value_source(&id) {
            _ if file.iter().any(|added| added.key == key) => "file",
            Some(ValueSource::CommandLine) => "command line",
            Some(ValueSource::EnvVariable) => "environment",
            _ => "default",
        };
        let line = match value(key, &id, serve, &command) {
            // Not whole, so it cannot be read again.
            Some((value, false)) => format!("# {key} = {value}"),
            Some((value, true)) => format!("{key} = {value}"),
            None => format!("# {key} is not set"),
        };
        lines += &format!("{line:<48} # {source}\n");
    }
    lines
}

/// The value of an option, and whether it is whole: a secret is left out.
fn value(key: &str, id: &str, serve: &ArgMatches, command: &Command) -> Option<(Value, bool)> {
    if is_flag(key, command) {
        return Some((serve.get_flag(id).into(), true));
    }
    let raw = serve.get_raw(id)?;
    let raw: Vec<_> = raw.map(|raw| raw.to_string_lossy().into_owned()).collect();
    let texts: Vec<_> = raw.iter().map(|text| shown(id, text)).collect();
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

/// What of an option's value may be shown.
fn shown(id: &str, text: &str) -> String {
    match id {
        // Only the name of a file.
        "store" if text.starts_with('@') => text.to_owned(),
        // All of a store's URL that may be shown: the rest can hold a secret.
        "store" => format!("{}:…", crate::store::scheme(text)),
        "otlp_endpoint" => redacted(text),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        assert_eq!(distance("lisen", "listen"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("acb", "abc"), 2);
    }
}
