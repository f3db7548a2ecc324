//! The options of `serve`: command line over environment over file.

use crate::service::Service;
use crate::support::{Home, Ran};

fn print(home: &Home, options: &[&str], variables: &[(&str, &str)]) -> Ran {
    let fixed = ["serve", "--print-config", "--config", "leasehold.toml"];
    let mut command = home.command(fixed.iter().chain(options));
    command.envs(variables.iter().copied());
    Ran::from(command.output().unwrap())
}

/// Returns the value of a key and its source.
#[track_caller]
fn line<'a>(printed: &'a str, key: &str) -> (&'a str, &'a str) {
    let mut lines = printed.lines();
    let line = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
    let (value, source) = line.expect("the key is printed").split_once('#').unwrap();
    (value.trim(), source.trim())
}

#[test]
fn command_line_precedes_environment_and_environment_precedes_file() {
    let home = Home::new();
    let file = "listen = \"127.0.0.1:1\"\nmax-rate = 7\ninsecure = true\nlog = \"json\"\n";
    std::fs::write(home.file("leasehold.toml"), file).unwrap();
    let printed = print(&home, &[], &[]).ok().stdout;
    assert_eq!(line(&printed, "listen"), ("\"127.0.0.1:1\"", "file"));
    assert_eq!(line(&printed, "max-rate"), ("7", "file"));
    assert_eq!(line(&printed, "insecure"), ("true", "file"));
    assert_eq!(line(&printed, "purge-after"), ("\"24h\"", "default"));
    assert!(printed.contains("# access is not set"), "{printed}");
    let variables = [
        ("LEASEHOLD_LISTEN", "127.0.0.1:2"),
        ("LEASEHOLD_MAX_RATE", "8"),
    ];
    let printed = print(&home, &["--listen", "127.0.0.1:3"], &variables)
        .ok()
        .stdout;
    assert_eq!(
        line(&printed, "listen"),
        ("\"127.0.0.1:3\"", "command line")
    );
    assert_eq!(line(&printed, "max-rate"), ("8", "environment"));
    // The output is a valid configuration file.
    std::fs::write(home.file("leasehold.toml"), &printed).unwrap();
    let again = print(&home, &[], &[]).ok().stdout;
    assert_eq!(line(&again, "listen"), ("\"127.0.0.1:3\"", "file"));
}

#[test]
fn invalid_keys_and_values_of_a_file_are_explained() {
    let home = Home::new();
    for (file, hint) in [
        ("lisen = \"127.0.0.1:1\"", "did you mean `listen`?"),
        ("banana = 1", "the keys are `listen`"),
        ("config = \"x\"", "unknown key `config`"),
        ("listen = 1.5", "must be a string or a whole number"),
        (
            "listen = \"nowhere\"",
            "invalid value 'nowhere' for '--listen",
        ),
        ("insecure = \"yes\"", "`insecure` must be `true` or `false`"),
        ("max-rate = 0", "invalid value '0'"),
        ("[listen]", "`listen` is a table"),
        ("listen =", "leasehold.toml"),
    ] {
        std::fs::write(home.file("leasehold.toml"), file).unwrap();
        print(&home, &[], &[]).failed(2, hint);
    }
    std::fs::remove_file(home.file("leasehold.toml")).unwrap();
    print(&home, &[], &[]).failed(2, "leasehold.toml");
}

#[test]
fn secrets_are_not_printed() {
    let home = Home::new();
    let file =
        "store = \"postgres://ada:s3cret@db1/app\"\notlp-endpoint = \"http://ada:s3cret@c:4318\"\n";
    std::fs::write(home.file("leasehold.toml"), file).unwrap();
    let printed = print(&home, &[], &[("LEASEHOLD_TOKEN", "lh_s3cret")]).ok();
    assert!(!printed.stdout.contains("s3cret"), "{printed:?}");
    assert_eq!(line(&printed.stdout, "# store"), ("\"postgres:…\"", "file"));
    let endpoint = line(&printed.stdout, "# otlp-endpoint");
    assert_eq!(endpoint, ("\"http://…@c:4318\"", "file"));

    std::fs::write(home.file("leasehold.toml"), "store = \"@store\"").unwrap();
    let printed = print(&home, &[], &[]).ok();
    assert_eq!(line(&printed.stdout, "store"), ("\"@store\"", "file"));
}

#[test]
fn service_applies_the_options_of_its_file() {
    let home = Home::new();
    let file = "store = \"sqlite:mine.db\"\naudit = \"audit.jsonl\"\n";
    std::fs::write(home.file("leasehold.toml"), file).unwrap();
    let mut service = Service::start_with(&home, &["--config", "leasehold.toml"]);
    let answer = service.post("/locks/job?nonce=s3cret&owner=web");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let listed = home
        .run(["list", "--json", "--store", "sqlite:mine.db"])
        .json();
    let fence = &listed["locks"][0]["fence"];
    let audit = std::fs::read_to_string(home.file("audit.jsonl")).unwrap();
    let line: serde_json::Value = serde_json::from_str(audit.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&line["operation"], &line["name"]),
        (&"acquire".into(), &"job".into())
    );
    assert_eq!(
        (&line["outcome"], &line["fence"]),
        (&"granted".into(), fence)
    );
    assert!(!audit.contains("s3cret"), "{audit}");
}
