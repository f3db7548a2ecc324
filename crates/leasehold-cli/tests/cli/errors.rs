//! The error texts of all commands, in one file for review: `errors.txt`.
//!
//! After an intended change of a text, write the file again and review its diff:
//!
//! ```sh
//! LEASEHOLD_UPDATE_SNAPSHOTS=1 cargo test -p leasehold-cli --all-features --test cli errors
//! ```

use std::path::Path;
use std::process::Command;

use regex::Regex;

use crate::service::Service;
use crate::support::{Home, LEASEHOLD, Ran};
use crate::token;

const UPDATE: &str = "LEASEHOLD_UPDATE_SNAPSHOTS";
const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/errors.txt");

/// Shell lines that prepare the store and the files.
const SETUP: &[&str] = &[
    "leasehold acquire nightly --owner web-1 --ttl 1h",
    "leasehold gate shut --every 1h --owner web-1",
    "leasehold put item --state NEW && leasehold claim NEW --ttl 1h --owner worker-1",
    "leasehold acquire shared -n --owner web-1 --ttl 1h --shared --limit 2",
    "echo 'this is a text file' >text && cp text text.db && mkdir folder.db",
    "head -c 70000 /dev/zero | tr '\\0' x >long && printf 'caf\\351' >latin1",
    "printf 'a\\nb\\n' >two-lines && echo 'lisen = 1' >lisen.toml && echo 'listen = 1.5' >type.toml",
    "echo '[listen]' >table.toml && echo 'listen =' >syntax.toml && echo 'max-rate = 0' >range.toml",
    "echo 'insecure = \"yes\"' >flag.toml && echo 'banana = 1' >banana.toml",
    "echo '[[tokens]]' >typo.toml && cp text text.toml",
];

/// Shell lines by subject. `$LONG` is a text of 600 bytes, `$SERVICE` a service with tokens, `$TOKEN` one for `ci/`.
const SECTIONS: &[(&str, &[&str])] = &[
    (
        "Arguments",
        &[
            "leasehold fly",
            "leasehold lst",
            "leasehold run",
            "leasehold run job",
            "leasehold run '' true",
            "leasehold run $LONG true",
            "leasehold run \"$(printf 'line\\nbreak')\" true",
            "leasehold show \"$(cat latin1)\"",
            "leasehold run job --fly true",
            "leasehold run job --ttl banana true",
            "leasehold run job --ttl 1.2.3 true",
            "leasehold run job --ttl -5s true",
            "leasehold run job --ttl 0s true",
            "leasehold run job --ttl 25h true",
            "leasehold run job -n -w 1s true",
            "leasehold run job -E 300 true",
            "leasehold run job -c true -- true",
            "leasehold run job --on-loss hammer true",
            "leasehold run job --max-hold 10ms sleep 10",
            "leasehold run job leasehold run job true",
            "leasehold run job leasehold run job --also other --nested true",
            "leasehold run job --limit 3 true",
            "leasehold run job --shared --limit 0 true",
            "leasehold run job --shared --limit 257 true",
            "leasehold run shared --shared --limit 3 -n true",
            "leasehold run job --owner $LONG true",
            "leasehold run job --also other --shared true",
            "leasehold acquire job --nonce ''",
            "leasehold acquire job --nonce $LONG",
            "leasehold acquire job --fence 1",
            "leasehold renew job",
            "leasehold renew job first",
            "leasehold update job 1",
            "leasehold update job 1 --state $LONG",
            "leasehold release job",
            "leasehold break job",
            "leasehold break job --force",
            "leasehold break job --fence 1 --now",
            "leasehold list --held --free",
            "leasehold list --limit many",
            "leasehold list --sort age",
            "leasehold list --sort since --cursor a",
            "leasehold gate alert",
            "leasehold gate alert --every 0s",
            "leasehold gate alert --every 4000d",
            "leasehold completions cobol",
            "leasehold man fly",
            "leasehold man --folder text/man",
            "TOKIO_WORKER_THREADS=0 leasehold show job",
        ],
    ),
    (
        "Contention",
        &[
            "leasehold run nightly -n true",
            "leasehold run nightly -w 1ms true",
            "leasehold run nightly -n --json true",
            "leasehold run other --also nightly -n true",
            "leasehold acquire nightly -n",
            "leasehold acquire nightly -n -E 3",
            "leasehold gate shut --every 1h",
            "leasehold gate shut --every 1h --json",
            "leasehold put item --state NEW",
            "leasehold remove item",
            "leasehold claim NEW",
        ],
    ),
    (
        "Fences that do not hold the lease",
        &[
            "leasehold renew nightly 1",
            "leasehold renew nightly 1 --json",
            "leasehold update nightly 1 body",
            "leasehold break nightly --fence 1",
            "leasehold break nightly --nonce other",
            "leasehold renew unused 1",
        ],
    ),
    (
        "Bodies and items",
        &[
            "leasehold put new --state ''",
            "leasehold put new --state $LONG",
            "leasehold put new --state NEW --body-file missing",
            "leasehold put new --state NEW --body-file folder.db",
            "leasehold put new --state NEW --body-file long",
            "leasehold put new --state NEW --body-file latin1",
            "leasehold put new --state NEW --body x --body-file text",
            "leasehold update nightly 1 - <long",
            "leasehold claim ''",
            "leasehold claim NEW --limit 0",
            "leasehold claim NEW --ttl 0s",
            "leasehold work NEW --next DONE true",
            "leasehold work NEW --next NEW --failed F true",
            "leasehold work NEW --next D --failed $LONG true",
        ],
    ),
    (
        "Commands that fail",
        &[
            "leasehold run job -- ./missing",
            "leasehold run job -- ./text",
            "leasehold gate g --every 1h -- ./missing",
            "leasehold gate g --every 1h -- sh -c 'kill -9 $$'",
            "leasehold put a --state W && leasehold work W --next D --failed F --drain -- ./missing",
            "leasehold put a --state W && leasehold work W --next D --failed F --drain -- sh -c 'exit 3'",
            "leasehold put a --state W && leasehold work W --next D --failed F --drain --output -- cat latin1",
            "leasehold run job --ttl 10s -- sh -c 'leasehold break job --force --now --reason test >/dev/null; sleep 60'",
        ],
    ),
    (
        "Stores",
        &[
            "leasehold list --store leases.db",
            "leasehold list --store oracle:leases",
            "leasehold list --store sqlite:",
            "leasehold list --store sqlite:text.db",
            "leasehold list --store sqlite:folder.db",
            "leasehold list --store sqlite:no/such/folder/leases.db",
            "leasehold list --store sqlite:leases.db?cache=1",
            "leasehold list --store memory:",
            "leasehold list --store http://127.0.0.1:1",
            "leasehold list --store http://127.0.0.1:1 --json",
            "leasehold watch --store http://127.0.0.1:1",
            "leasehold list --store http://",
            "leasehold list --store http://127.0.0.1:1/path?x=1",
            "leasehold list --store redis://127.0.0.1:1",
            "leasehold list --store postgres://127.0.0.1:1/app",
            "leasehold init --store http://127.0.0.1:1",
            "leasehold doctor --store teapot:",
            "leasehold purge --store http://127.0.0.1:1",
            "leasehold purge --older-than 59m",
            "leasehold init --system",
            "leasehold init --system --store sqlite:x.db",
            "XDG_DATA_HOME=$PWD/text leasehold list",
            "SUDO_USER=daemon leasehold list --held",
        ],
    ),
    (
        "Secrets",
        &[
            "leasehold list --store @missing",
            "leasehold list --store @two-lines",
            "LEASEHOLD_STORE=withheld: leasehold list",
            "LEASEHOLD_TOKEN=withheld: leasehold list --store http://127.0.0.1:1",
            "echo sqlite:mine.db >store && chmod 644 store && leasehold list --store @store",
            "leasehold list --store http://app:s3cret@127.0.0.1:1",
            "leasehold list --store redis://127.0.0.1:1/0#s3cret",
        ],
    ),
    (
        "Serve",
        &[
            "leasehold serve --listen nowhere",
            "leasehold serve --listen $ADDRESS",
            "leasehold serve --listen 192.0.2.1:1",
            "leasehold serve --listen 192.0.2.1:1 --insecure",
            "leasehold serve --store http://127.0.0.1:1",
            "leasehold serve --purge-after 59m",
            "leasehold serve --max-rate 0",
            "leasehold serve --audit-max-size 1",
            "leasehold serve --audit audit.jsonl --audit-max-size 1T",
            "leasehold serve --audit missing/audit.jsonl --listen 127.0.0.1:0",
            "leasehold serve --access missing.toml",
            "leasehold serve --access typo.toml",
            "leasehold serve --access text.toml",
            "leasehold serve --tls-cert cert.pem",
            "leasehold serve --tls-cert cert.pem --tls-key key.pem",
            "leasehold serve --otlp-endpoint collector:4318",
            "leasehold serve --log-level 'a=b=c'",
            "leasehold serve --config missing.toml",
            "leasehold serve --config lisen.toml",
            "leasehold serve --config banana.toml",
            "leasehold serve --config type.toml",
            "leasehold serve --config table.toml",
            "leasehold serve --config flag.toml",
            "leasehold serve --config range.toml",
            "leasehold serve --config syntax.toml",
        ],
    ),
    (
        "Tokens and rights",
        &[
            "leasehold token list",
            "leasehold token list --access missing.toml",
            "leasehold token create ci --allow jobs/ --access new.toml",
            "leasehold token create '' --allow read: --access new.toml",
            "leasehold token create ci --allow read: --access typo.toml",
            "leasehold token create ci --allow read: --expires 9999999d --access new.toml",
            "leasehold token revoke 12345678 --access access.toml",
            "leasehold list --store $SERVICE",
            "leasehold list --store $SERVICE --token lh_unknown",
            "leasehold run other --store $SERVICE --token $TOKEN true",
            "leasehold break ci/job --force --now --reason test --store $SERVICE --token $TOKEN",
        ],
    ),
    (
        "Bench",
        &[
            "leasehold bench --tasks 0",
            "leasehold bench --tasks 9 --names 8",
            "leasehold bench --for 0s",
            "leasehold bench --prefix ''",
            "leasehold bench --ttl 25h --for 1ms",
            "leasehold bench --store http://127.0.0.1:1",
        ],
    ),
];

/// A home folder with a store, files and a service, in which shell lines run.
struct Shell {
    home: Home,
    service: Service,
    token: String,
    normaliser: Normaliser,
}

impl Shell {
    fn new() -> Self {
        let home = Home::new();
        let (token, _) = token::create(&home, "ci", &["acquire:ci/"]);
        let service =
            Service::start_with(&home, &["--access", "access.toml", "--store", "memory:"]);
        std::fs::create_dir(home.file("bin")).unwrap();
        std::os::unix::fs::symlink(LEASEHOLD, home.file("bin/leasehold")).unwrap();
        let shell = Self {
            home,
            service,
            token,
            normaliser: Normaliser::new(),
        };
        for line in SETUP {
            shell.run(line).ok();
        }
        shell
    }

    fn command(&self, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap();
        let programs = self.home.file("bin");
        let mut command = self.home.program("sh");
        command
            .args(["-c", &format!("umask 022; {line}")])
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("LONG", "x".repeat(600))
            .env("SERVICE", self.service.url())
            .env("ADDRESS", &self.service.address)
            .env("TOKEN", &self.token)
            .env_remove("COLUMNS")
            .env_remove("SUDO_USER");
        command
    }

    fn run(&self, line: &str) -> Ran {
        Ran::from(self.command(line).output().unwrap())
    }

    /// Returns a shell line, its exit code and its standard error, normalised.
    fn transcript(&self, line: &str) -> String {
        let ran = self.run(line);
        let code = ran
            .code
            .map_or("signal".to_owned(), |code| code.to_string());
        assert!(!ran.stderr.contains("s3cret"), "{line}: {ran:?}");
        let errors = ran.stderr.trim_end();
        let errors = errors.replace(&self.home.path().display().to_string(), "HOME");
        let errors = errors.replace(&self.service.address, "127.0.0.1:PORT");
        let errors = errors.replace(&"x".repeat(600), "LONG");
        let errors = self.normaliser.apply(errors);
        format!("$ {line}\n{errors}\nexit code {code}\n\n")
    }
}

/// What differs between runs, builds and machines, and what stands for it in the snapshot.
const REPLACEMENTS: &[(&str, &str)] = &[
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (
        r"\b(another|after|in) \d+(\.\d+)?(ms|s|m|h)( \d\d[sm])?",
        "$1 DURATION",
    ),
    (r#""retryAfter":\d+"#, r#""retryAfter":MILLISECONDS"#),
    // The stores of this build.
    (r"use one of `sqlite:PATH`.*", "use one of STORES"),
];

struct Normaliser(Vec<(Regex, &'static str)>);

impl Normaliser {
    fn new() -> Self {
        let compile =
            |(pattern, text): &(&str, &'static str)| (Regex::new(pattern).unwrap(), *text);
        Self(REPLACEMENTS.iter().map(compile).collect())
    }

    fn apply(&self, text: String) -> String {
        let replace = |text: String, (pattern, replacement): &(Regex, &str)| {
            pattern.replace_all(&text, *replacement).into_owned()
        };
        self.0.iter().fold(text, replace)
    }
}

/// Returns the first lines in which two texts differ.
fn difference(old: &str, new: &str) -> String {
    let mut last_command = "";
    let mut old = old.lines();
    for line in new.lines() {
        if line.starts_with("$ ") {
            last_command = line;
        }
        match old.next() {
            Some(expected) if expected == line => {}
            expected => {
                let expected = expected.unwrap_or("(end of file)");
                return format!("{last_command}\n  expected: {expected}\n  found:    {line}");
            }
        }
    }
    format!("missing: {:?}", old.next())
}

#[test]
fn error_texts_match_the_snapshot() {
    let shell = Shell::new();
    let mut texts = String::from(
        "# The error texts of `leasehold`. Written by tests/cli/errors.rs, which says how to update it.\n\n",
    );
    for (subject, lines) in SECTIONS {
        texts += &format!("## {subject}\n\n");
        lines
            .iter()
            .for_each(|line| texts += &shell.transcript(line));
    }

    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(SNAPSHOT, &texts).unwrap();
    }
    let expected = std::fs::read_to_string(Path::new(SNAPSHOT)).unwrap_or_default();
    assert!(
        texts == expected,
        "the error texts differ from tests/cli/errors.txt:\n{}\nIf this is intended, write the file again with {UPDATE}=1 \
         and review its diff.",
        difference(&expected, &texts)
    );
}
