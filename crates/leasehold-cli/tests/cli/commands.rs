//! The commands that take one step each, with text and JSON output.

use crate::support::Home;

const NAMES: [&str; 7] = ["a/b/c", "a_b_c", "#?%", "..", "émoji 🔒", "-x", "it's"];

#[test]
fn lease_is_acquired_renewed_updated_and_released() {
    let home = Home::new();
    let acquired = home
        .run(["acquire", "job", "--owner", "me", "--ttl", "5m", "--json"])
        .json();
    assert_eq!(
        (&acquired["name"], &acquired["ttl"]),
        (&"job".into(), &300_000.into())
    );
    assert_eq!(acquired["nonce"].as_str().unwrap().len(), 32);
    let fence = acquired["fence"].to_string();

    let unrenewed = home.run(["show", "job"]).ok().stdout;
    assert!(unrenewed.contains("Z, expires in 4m 5"), "{unrenewed}");
    let renewed = home.run(["renew", "job", &fence, "--json"]).json();
    let text = home.run(["show", "job"]).ok().stdout;
    let words = ["Z, renewed ", " ago, expires in 4m 5", " unless renewed\n"];
    assert!(words.iter().all(|words| text.contains(words)), "{text}");
    assert_eq!(renewed["fence"], acquired["fence"]);
    assert_eq!(renewed["acquireTime"], acquired["acquireTime"]);
    let updated = home
        .run([
            "update", "job", &fence, "half-way", "--state", "BUSY", "--json",
        ])
        .json();
    assert_eq!(updated["body"], "half-way");

    let shown = home.show("job");
    assert_eq!(
        (&shown["held"], &shown["body"], &shown["state"]),
        (&true.into(), &"half-way".into(), &"BUSY".into())
    );
    assert_eq!(
        (&shown["holders"][0]["owner"], &shown["holders"][0]["fence"]),
        (&"me".into(), &acquired["fence"])
    );
    assert_eq!(
        home.run(["release", "job", &fence, "--json"]).json()["released"],
        true
    );
    assert!(!home.is_held("job"));
    home.run(["renew", "job", &fence]).failed(76, "fence");
    home.run(["update", "job", &fence, "x"]).failed(76, "fence");
    assert_eq!(home.show("job")["body"], "half-way");
}

#[test]
fn acquire_prints_commands_to_renew_and_release() {
    let home = Home::new();
    let text = home.run(["acquire", "the job"]).ok().stdout;
    let release = text
        .lines()
        .find_map(|line| line.strip_prefix("to release it:  "))
        .unwrap();
    let renew = text
        .lines()
        .find_map(|line| line.split_once(":  leasehold renew "))
        .unwrap()
        .1;
    for line in [format!("leasehold renew {renew}"), release.to_owned()] {
        let script = line.replace("leasehold", "\"$LEASEHOLD\"");
        let output = home.program("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    }
    assert!(!home.is_held("the job"));
}

#[test]
fn nonce_repeats_an_acquisition_and_releases_it() {
    let home = Home::new();
    let acquire = ["acquire", "job", "-n", "--json", "--nonce", "n1"];
    let first = home.run(acquire).json();
    let again = home.run(acquire).json();
    assert_eq!(again["granted"], "again");
    assert!(again["fence"].as_u64() > first["fence"].as_u64());
    let fence = again["fence"].to_string();
    let kept = home.run(acquire.iter().chain(&["--fence", &*fence])).json();
    assert_eq!(kept["fence"], again["fence"]);
    let other = ["release", "job", "--nonce", "n2", "--json"];
    assert_eq!(home.run(other).json()["released"], false);
    home.run(["break", "job", "--nonce", "n2"])
        .failed(76, "fence");
    assert_eq!(
        home.run(["release", "job", "--nonce", "n1", "--json"])
            .json()["released"],
        true
    );
    let listed = home.run(["list"]).ok().stdout + &home.run(["list", "--json"]).ok().stdout;
    assert!(!listed.contains("n1"), "{listed}");
}

#[test]
fn update_reads_a_body_from_a_pipe_and_can_release() {
    let home = Home::new();
    let fence = home.run(["acquire", "job", "--json"]).json()["fence"].to_string();
    let mut update = home.start(["update", "job", &fence, "-"]);
    update.write("line 1\nline 2\n");
    update.ends_with(0);
    assert_eq!(home.show("job")["body"], "line 1\nline 2\n");
    let complete = [
        "update",
        "job",
        &*fence,
        "done",
        "--state",
        "DONE",
        "--release",
        "--json",
    ];
    assert_eq!(home.run(complete).json()["released"], true);
    assert_eq!(
        home.run(complete).json()["released"],
        true,
        "a repeated call succeeds too"
    );
    let shown = home.show("job");
    assert_eq!(
        (&shown["held"], &shown["last"]["how"]),
        (&false.into(), &"completed".into())
    );
}

#[test]
fn broken_lease_stays_taken_until_expiry_unless_broken_with_now() {
    let home = Home::new();
    let fence = home.run(["acquire", "job", "--json"]).json()["fence"].to_string();
    let force = [
        "break",
        "job",
        "--force",
        "--reason",
        "host is down",
        "--json",
    ];
    let broken = home.run(force).json();
    assert!(broken["until"].is_string(), "{broken}");
    home.run(["renew", "job", &fence]).failed(76, "");
    home.run(["acquire", "job", "-n"]).failed(75, "held");
    let text = home.run(["show", "job"]).ok().stdout;
    assert!(text.contains("broken: host is down"), "{text}");
    let now = home.run(force.iter().chain(&["--now"])).json();
    assert_eq!(now, serde_json::json!({ "broken": true }));
    home.run(["acquire", "job", "-n"]).ok();

    let own = home.run(["acquire", "own", "--json"]).json()["fence"].to_string();
    home.run(["break", "own", "--fence", &own]).ok();
    assert!(!home.is_held("own"));
    let free = ["break", "free", "--fence", "1", "--json"];
    assert_eq!(home.run(free).json()["broken"], false);
}

#[test]
fn names_with_special_characters_round_trip_and_stay_distinct() {
    let home = Home::new();
    for name in NAMES {
        let run = home
            .run(["run", "--", name, "sh", "-c", "echo \"$LEASEHOLD_NAME\""])
            .ok();
        assert_eq!(run.stdout, format!("{name}\n"));
        let owner = format!("--owner={name}");
        home.run(["acquire", "--json", "-n", &owner, "--", name])
            .json();
    }
    let listed = home.run(["list", "--held", "--json"]).json();
    let mut found: Vec<_> = listed["locks"].as_array().unwrap().iter().collect();
    found.sort_by_key(|lock| lock["name"].as_str().unwrap().to_owned());
    let mut names = NAMES;
    names.sort_unstable();
    assert_eq!(found.len(), names.len());
    for (lock, name) in found.iter().zip(names) {
        assert_eq!(
            (&lock["name"], &lock["holders"][0]["owner"]),
            (&name.into(), &name.into())
        );
        assert_eq!(home.show(name)["name"], name);
    }
}

#[test]
fn every_command_has_help_a_manual_page_and_completions() {
    let home = Home::new();
    let commands = [
        "run",
        "acquire",
        "renew",
        "update",
        "release",
        "break",
        "gate",
        "put",
        "remove",
        "claim",
        "work",
        "purge",
        "show",
        "list",
        "serve",
        "completions",
        "man",
    ];
    let help = home.run(["--help"]).ok().stdout;
    for words in [
        "leasehold help stores",
        "LEASEHOLD_STORE",
        "Examples:",
        "75 ",
    ]
    .iter()
    .chain(&commands)
    {
        assert!(help.contains(words), "{words}: {help}");
    }
    assert!(!help.contains("__"), "{help}");
    for command in commands {
        let help = home.run([command, "--help"]).ok().stdout;
        assert!(help.contains("Examples:"), "{help}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(
            home.run(["completions", shell])
                .ok()
                .stdout
                .contains("leasehold")
        );
        assert!(
            home.run(["completions", shell, "--json"])
                .json()
                .is_string()
        );
    }
    assert!(home.run(["man"]).ok().stdout.starts_with(".ie"));
    assert!(home.run(["man", "--json"]).json().is_string());
    assert!(
        home.run(["man", "run"])
            .ok()
            .stdout
            .contains("LEASEHOLD_FENCE")
    );
    home.run(["man", "fly"]).failed(2, "unknown command `fly`");
    home.run(["man", "--folder", "man1"]).ok();
    for command in commands {
        let page =
            std::fs::read_to_string(home.file(&format!("man1/leasehold-{command}.1"))).unwrap();
        assert!(
            page.contains("EXTRA") || page.contains("Examples"),
            "{page}"
        );
    }
    assert!(
        home.run(["--version"])
            .ok()
            .stdout
            .starts_with("leasehold ")
    );
}

#[test]
fn stores_are_listed_by_their_own_help_topic_only() {
    let home = Home::new();
    let topic = home.run(["help", "stores"]).ok().stdout;
    for words in [
        "sqlite:PATH\n",
        "postgres://USER@HOST/DATABASE (or postgresql://)\n",
        "  sslmode=MODE          disable, prefer (the default)",
        "https://HOST:PORT\n",
        "  ca=FILE ",
        "@FILE: a file",
    ] {
        assert!(topic.contains(words), "{words}: {topic}");
    }
    for same in [&["stores"][..], &["stores", "--help"], &["stores", "-h"]] {
        assert_eq!(home.run(same).ok().stdout.trim(), topic.trim(), "{same:?}");
    }
    assert_eq!(
        home.run(["stores", "--json"]).json(),
        topic.trim_end().to_owned() + "\n"
    );
    let page = home.run(["man", "stores"]).ok().stdout;
    assert!(page.contains("sslrootcert=FILE"), "{page}");
    for command in [&["--help"][..], &["list", "--help"], &["list", "-h"]] {
        let help = home.run(command).ok().stdout;
        assert!(!help.contains("postgres://"), "{help}");
        assert!(help.contains("leasehold help stores"), "{help}");
    }
    let script = home.run(["completions", "fish"]).ok().stdout;
    assert!(script.contains("\"stores\""), "{script}");
}
