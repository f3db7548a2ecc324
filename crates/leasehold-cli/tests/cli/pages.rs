//! The pages of the documentation, and checks that hold for every code block in them.
//!
//! A block is `sh` (a guide's blocks are run to their end, in order), `sh no_run` (only checked), or data. A block that
//! starts with `#!` is a script, and its second line names its file.

use std::collections::BTreeSet;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::service::Service;
use crate::support::{Home, LEASEHOLD, Ran, Running};

/// The languages of code blocks, and what tests them.
const LANGUAGES: [&str; 8] = [
    "sh",        // here
    "sh no_run", // here: syntax, and the arguments of `leasehold`
    "console",   // here: what the HTTP reference shows
    "json",      // here: syntax
    "toml",      // here: syntax, and the configuration
    "rust",      // documentation tests, or `fence_page` of the library
    "sql",       // `fence_page`; those of stores are for administrators
    "text",      // nothing to test
];

/// A page of the documentation.
pub(crate) struct Page {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A code block.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) language: &'a str,
    pub(crate) text: &'a str,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Page {
    pub(crate) fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(root().join(path));
        Self {
            path: path.to_owned(),
            text: text.unwrap_or_else(|error| panic!("{path}: {error}")),
        }
    }

    /// README and every page of `docs/`, except for records of decisions.
    fn all() -> Vec<Self> {
        let mut pages: Vec<_> = ["README.md", "CONTRIBUTING.md", "examples/README.md"]
            .map(Self::read)
            .into();
        for folder in ["docs", "docs/guides", "docs/reference", "docs/stores"] {
            for entry in std::fs::read_dir(root().join(folder)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if name.ends_with(".md") {
                    pages.push(Self::read(&format!("{folder}/{name}")));
                }
            }
        }
        pages
    }

    pub(crate) fn blocks(&self) -> Vec<Block<'_>> {
        let mut parts = self.text.split("```");
        let mut blocks = Vec::new();
        while let (Some(_prose), Some(block)) = (parts.next(), parts.next()) {
            let (language, text) = block.split_once('\n').unwrap_or((block, ""));
            blocks.push(Block { language, text });
        }
        blocks
    }

    /// The shell example that contains these words.
    #[track_caller]
    pub(crate) fn example(&self, words: &str) -> String {
        let blocks = self.blocks();
        let found = blocks
            .iter()
            .find(|block| block.language.starts_with("sh") && block.text.contains(words));
        let found = found.unwrap_or_else(|| panic!("{} has no example with {words:?}", self.path));
        found.text.to_owned()
    }

    /// The line of a shell example that contains these words.
    #[track_caller]
    pub(crate) fn line(&self, words: &str) -> String {
        let example = self.example(words);
        let line = example.lines().find(|line| line.contains(words));
        line.expect("the example has these words").to_owned()
    }

    /// The scripts that the page shows: their names and texts.
    fn scripts(&self) -> Vec<(&str, &str)> {
        let blocks = self.blocks();
        let scripts = blocks.iter().filter(|block| block.text.starts_with("#!"));
        scripts
            .map(|script| {
                let name = script
                    .text
                    .lines()
                    .nth(1)
                    .and_then(|line| line.strip_prefix("# "));
                (name.expect("a script's second line names it"), script.text)
            })
            .collect()
    }
}

/// A user with a home of their own, and `leasehold` on the path.
pub(crate) struct User(pub(crate) Home);

impl User {
    pub(crate) fn new() -> Self {
        let home = Home::new();
        // A request that is refused is a command that fails.
        std::fs::write(home.file(".curlrc"), "silent\nshow-error\nfail-with-body\n").unwrap();
        Self(home)
    }

    /// A user with the scripts that a page shows. Scripts that it only names do nothing.
    pub(crate) fn of(page: &Page) -> Self {
        let user = Self::new();
        for word in page
            .text
            .split(|char: char| char.is_whitespace() || char == '`')
        {
            if let Some(name) = word.strip_prefix("./").filter(|name| name.ends_with(".sh")) {
                user.script(name, "");
            }
        }
        for (name, text) in page.scripts() {
            user.file(name, text);
        }
        user
    }

    /// A script of this user.
    pub(crate) fn script(&self, name: &str, text: &str) {
        self.file(name, &format!("#!/bin/sh\n{text}\n"));
    }

    fn file(&self, name: &str, text: &str) {
        let file = self.0.file(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    }

    /// The programs in this home, `leasehold`, and those of the tests.
    fn path(&self) -> String {
        let programs = Path::new(LEASEHOLD).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let path =
            [self.0.path(), programs, Path::new(&path)].map(|folder| folder.to_str().unwrap());
        path.join(":")
    }

    /// A program that finds `leasehold`, and first of all the programs in this home.
    fn program(&self, program: &str) -> Command {
        let mut command = self.0.program(program);
        command.env("PATH", self.path());
        command
    }

    /// Runs a line as cron does: in a session without a terminal, and without a home. The store is that of the system.
    pub(crate) fn run_by_cron(&self, line: &str) -> Ran {
        let store = self.0.file("system.db");
        let file = OpenOptions::new().append(true).create(true).open(&store);
        drop(file.unwrap());
        let mut session = self.program("setsid");
        session.args(["--wait", "timeout", "60", "env", "-i"]);
        session.arg(format!("PATH={}", self.path()));
        session.arg(format!("LEASEHOLD_SYSTEM_STORE={}", store.display()));
        let ran = Ran::from(session.args(["sh", "-c", line]).output().unwrap());
        assert!(std::fs::metadata(&store).unwrap().len() > 0, "{ran:?}");
        ran
    }

    /// Runs a shell script to its end.
    pub(crate) fn run(&self, script: &str) -> Ran {
        // A command that never ends is a failure rather than a test that hangs.
        let mut shell = self.program("timeout");
        Ran::from(
            shell
                .args(["60", "bash", "-e", "-c", script])
                .output()
                .unwrap(),
        )
    }

    /// Starts one command.
    pub(crate) fn start(&self, command: &str) -> Running {
        // `exec`, so that signals reach the command and not a shell around it.
        Running::start(
            self.program("bash")
                .args(["-c", &format!("exec {command}")]),
        )
    }
}

#[test]
fn every_code_block_names_its_language() {
    for page in Page::all() {
        for block in page.blocks() {
            let known = LANGUAGES.contains(&block.language);
            assert!(known, "{}: {block:?}", page.path);
        }
    }
}

#[test]
fn every_rust_example_is_compiled() {
    let tested = include_str!("../../../leasehold/src/pages.rs");
    for page in Page::all() {
        let has_rust = page.blocks().iter().any(|block| block.language == "rust");
        // The examples of this page are those of the documentation comments of `leasehold::fence`.
        if has_rust && page.path != "docs/guides/fence-your-writes.md" {
            let include = format!("include_str!(\"../../../{}\")", page.path);
            assert!(tested.contains(&include), "{include}");
        }
    }
}

#[test]
fn data_in_examples_can_be_read() {
    for page in Page::all() {
        for block in page.blocks() {
            match block.language {
                "json" => drop(json(block.text)),
                "toml" => {
                    let read = block.text.parse::<toml_edit::DocumentMut>();
                    assert!(read.is_ok(), "{}: {read:?}", page.path);
                }
                _ => {}
            }
        }
    }
}

/// Reads JSON in which `…` stands for what is left out.
fn json(text: &str) -> Value {
    let mut text = text.to_owned();
    for left_out in [",…", "…,", "…"] {
        text = text.replace(left_out, "");
    }
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// In place of `leasehold`: records the calls whose arguments the real one refuses. It has nothing but built-in commands,
/// since no program is on the path of an example that is only checked.
const CHECK: &str = r#"#!/bin/bash
arguments=()
for argument; do
    [ "$argument" = -- ] && break
    arguments+=("$argument")
done
"$LEASEHOLD" "${arguments[@]}" --help >/dev/null 2>>"$HOME/wrong" || echo "in: leasehold $*" >>"$HOME/wrong"
"#;

#[test]
fn shell_examples_use_arguments_that_exist() {
    for page in Page::all() {
        let blocks = page.blocks();
        for block in blocks
            .iter()
            .filter(|block| block.language.starts_with("sh"))
        {
            let user = User::new();
            user.file("leasehold", CHECK);
            std::fs::create_dir(user.0.file("etc")).unwrap();
            let script = block.text.replace("/etc/leasehold", "etc");
            let syntax = user.run(&format!("bash -n <<'END'\n{script}\nEND"));
            assert_eq!(
                (syntax.code, &*syntax.stderr),
                (Some(0), ""),
                "{}: {script}",
                page.path
            );
            let ran = Command::new("/bin/bash")
                .args([
                    "-c",
                    &format!("command_not_found_handle() {{ :; }}\n{script}"),
                ])
                .current_dir(user.0.path())
                .env_clear()
                .env("PATH", user.0.path())
                .env("HOME", user.0.path())
                .env("LEASEHOLD", LEASEHOLD)
                .envs([("LEASEHOLD_NAME", "name"), ("LEASEHOLD_FENCE", "7")])
                .stdin(std::process::Stdio::null())
                .output();
            assert!(ran.is_ok(), "{}: {script}", page.path);
            let wrong = std::fs::read_to_string(user.0.file("wrong")).unwrap_or_default();
            assert_eq!(wrong, "", "{}", page.path);
        }
    }
}

#[test]
fn examples_of_guides_run_to_their_end() {
    let pages = Page::all();
    let is_run = |page: &&Page| {
        page.path.starts_with("docs/guides/")
            || ["docs/concepts.md", "docs/reference/cli.md"].contains(&&*page.path)
    };
    std::thread::scope(|scope| {
        for page in pages.iter().filter(is_run) {
            scope.spawn(|| run_all(page));
        }
    });
}

fn run_all(page: &Page) {
    let user = User::of(page);
    let address = "localhost:12345";
    let service = page.text.contains(address).then(|| Service::start(&user.0));
    for block in page.blocks() {
        if block.language == "sh" && !block.text.starts_with("#!") {
            let script = match &service {
                Some(service) => block.text.replace(address, &service.address),
                None => block.text.to_owned(),
            };
            let ran = user.run(&script);
            assert_eq!(ran.code, Some(0), "{}: {script}: {ran:?}", page.path);
        }
    }
}

#[test]
fn the_service_answers_as_the_http_reference_shows() {
    let page = Page::read("docs/reference/http.md");
    let user = User::new();
    let service = Service::start(&user.0);
    let mut asked = 0;
    for block in page.blocks() {
        let Some(example) = block.text.strip_prefix("$ curl ") else {
            continue;
        };
        // Not a stream, and not what needs a token.
        if example.starts_with("-N") || example.contains("Authorization") {
            continue;
        }
        let (request, shown) = example.split_once("\n{").expect("an answer in JSON");
        let ran = user.run(&format!(
            "curl {}",
            request.replace("localhost:12345", &service.address)
        ));
        let answer: Value = serde_json::from_str(&ran.ok().stdout).unwrap();
        assert_eq!(
            keys(&answer),
            keys(&json(&format!("{{{shown}"))),
            "{request}"
        );
        asked += 1;
    }
    assert!(asked > 5, "{asked}");
}

pub(crate) fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn the_service_accepts_the_configuration_that_is_shown() {
    let page = Page::read("docs/reference/configuration.md");
    let user = User::new();
    let blocks = page.blocks();
    let shown = blocks
        .iter()
        .find(|block| block.language == "toml")
        .unwrap();
    std::fs::write(user.0.file("store"), "sqlite:leases.db\n").unwrap();
    let here = user.0.path().to_str().unwrap();
    let text = shown.text.replace("/etc/leasehold", here);
    std::fs::write(user.0.file("leasehold.toml"), text).unwrap();
    let printed = user
        .run("leasehold serve --config leasehold.toml --print-config")
        .ok()
        .stdout;
    assert!(printed.contains("max-waits = 200"), "{printed}");
    for option in printed.lines().filter_map(|line| {
        let line = line.trim_start_matches("# ");
        line.split([' ', '=']).next()
    }) {
        assert!(
            page.text.contains(&format!("`{option}`")),
            "{option} is not explained"
        );
    }
}
