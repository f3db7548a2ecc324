//! The examples of the guides, and of the reference of commands, do what the text around them says.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::pages::{Page, User};
use crate::support::eventually;

/// Prints its name, and ends when its input is closed.
const UNTIL_CLOSED: &str = "echo \"$0 runs\"; cat >/dev/null";

fn guide(name: &str) -> Page {
    Page::read(&format!("docs/guides/{name}.md"))
}

fn commands() -> Page {
    Page::read("docs/reference/cli.md")
}

#[test]
fn the_second_run_waits_or_gives_up() {
    let user = User::new();
    user.script("report.sh", UNTIL_CLOSED);
    let page = commands();
    let mut holder = user.start(&page.line("# waits as long"));
    holder.expect("./report.sh runs");
    let mut waiters = ["# waits as long", "-w 10s"].map(|words| user.start(&page.line(words)));
    for waiter in &mut waiters {
        waiter.expect("waiting for nightly");
    }
    user.run(&page.line("-n --")).failed(75, "nightly is held");
    let listed = user.run(&page.line("leasehold list  ")).ok().stdout;
    assert!(listed.contains("nightly"), "{listed}");
    let shown = user.run(&page.line("leasehold show")).ok().stdout;
    assert!(shown.contains("nightly"), "{shown}");
    holder.ends_with(0);
}

#[test]
fn four_share_a_limit_of_four() {
    let user = User::new();
    user.script("train.sh", UNTIL_CLOSED);
    let train = guide("limit-concurrency").line("--limit 4");
    let _four = [(); 4].map(|()| {
        let mut running = user.start(&train);
        running.expect("./train.sh runs");
        running
    });
    user.start(&train).expect("waiting for gpu");
}

#[test]
fn both_names_are_held_or_neither() {
    let user = User::new();
    user.script("transfer.sh", UNTIL_CLOSED);
    let both = guide("lock-several-names").line("--also bob");
    let mut holder = user.start(&both);
    holder.expect("./transfer.sh runs");
    for name in ["ada", "bob"] {
        assert!(user.0.is_held(name));
    }
    user.start(&both).expect("waiting for ada, bob");
    holder.ends_with(0);
}

#[test]
fn watching_shows_what_happens() {
    let user = User::new();
    let mut watching = user.start(&commands().line("leasehold watch"));
    std::thread::scope(|scope| {
        let seen = scope.spawn(|| watching.expect("nightly"));
        while !seen.is_finished() {
            user.run("leasehold run nightly -- true").ok();
        }
        seen.join().unwrap();
    });
    // Two runs within one look at the store: the end of the second shows.
    for _ in 0..2 {
        user.run("leasehold run nightly -- true").ok();
    }
    let fence = user.0.show("nightly")["fence"].to_string();
    while !watching.expect("completed  nightly").ends_with(&fence) {}
    watching.signal(Signal::SIGINT);
    watching.ends_with(0);
}

#[test]
fn a_killed_job_resumes_after_the_last_step_that_was_written() {
    let page = guide("resume-a-job");
    let user = User::of(&page);
    let job = page.line("leasehold run import");
    // The job fails after its third step, as if it had been killed there.
    let import = std::fs::read_to_string(user.0.file("import.sh")).unwrap();
    user.script(
        "import.sh",
        &import.replace("done\n", "[ \"$step\" = 3 ] && exit 1\ndone\n"),
    );
    let first = user.run(&job);
    assert_eq!(first.code, Some(1), "{first:?}");
    assert_eq!(first.stdout, "step 1\nstep 2\nstep 3\n");
    user.script("import.sh", &import);
    assert_eq!(user.run(&job).ok().stdout, "step 4\nstep 5\n");
    // It ended with 0, which clears the body.
    assert_eq!(user.run(&job).ok().stdout.lines().count(), 5);
}

#[test]
fn a_gate_passes_once_per_period_and_opens_again_if_the_command_fails() {
    let user = User::new();
    let gate = guide("throttle-alerts").line("leasehold gate device-42");
    user.script("notify.sh", "echo notified; exit 3");
    assert_eq!(user.run(&gate).code, Some(3));
    user.script("notify.sh", "echo notified");
    assert_eq!(user.run(&gate).ok().stdout, "notified\n");
    user.run(&gate).failed(75, "device-42 is shut");
}

#[test]
fn a_cron_job_behind_a_gate_runs_once_and_again_only_if_it_failed() {
    let user = User::new();
    let cron = guide("run-a-cron-job-once").line("leasehold run nightly -n");
    user.script("report.sh", "exit 3");
    assert_eq!(user.run(&cron).code, Some(3));
    user.script("report.sh", "echo reported");
    assert_eq!(user.run(&cron).ok().stdout, "reported\n");
    assert_eq!(user.run(&cron).ok().stdout, "");
}

#[test]
fn a_cron_job_that_notes_its_day_runs_until_it_succeeded() {
    let page = guide("run-a-cron-job-once");
    let user = User::of(&page);
    user.script("date", "echo 2026-11-19");
    let cron = page.line("leasehold run -q nightly --keep-body");
    user.script("report.sh", "exit 3");
    assert_eq!(user.run(&cron).code, Some(3));
    user.script("report.sh", "echo reported");
    assert_eq!(user.run(&cron).ok().stdout, "reported\n");
    assert_eq!(user.run(&cron).ok().stdout, "");
}

#[test]
fn a_short_job_is_not_repeated_by_a_machine_whose_clock_is_late() {
    for page in ["run-a-cron-job-once", "systemd-timers"] {
        let user = User::new();
        user.script("sync.sh", "echo synced");
        let job = guide(page).line("leasehold run sync");
        user.start(&job).expect("synced");
        // The first one was killed, so its lease lasts until it expires.
        let late = user.run(&job).ok();
        assert_eq!((&*late.stdout, &*late.stderr), ("", ""), "{page}");
    }
}

/// The commands of a page that a machine runs by itself: those of its examples, its crontabs and its units.
fn unattended_commands(page: &Page) -> Vec<String> {
    let blocks = page.blocks();
    let lines = blocks
        .iter()
        .filter(|block| !block.text.starts_with("#!"))
        .flat_map(|block| block.text.lines());
    let commands = lines.filter_map(|line| {
        let line = line.replace("ExecStart=/usr/local/bin/", "");
        let is_command = ["leasehold run ", "leasehold gate ", "./", "0 2 ", "*/5 "];
        if !is_command.iter().any(|start| line.starts_with(start)) {
            return None;
        }
        let command = &line[line.find(['l', '.'])?..];
        let command = command.split(" # ").next().unwrap_or_default();
        Some(command.replace("/opt/", "./"))
    });
    // Not on this machine; and one that has no end.
    let is_run = |command: &String| !command.contains("--store") && !command.contains("lead.sh");
    commands.filter(is_run).collect()
}

#[test]
fn recipes_print_nothing_in_a_cron_job_when_all_is_well() {
    for (name, commands) in [
        ("run-a-cron-job-once", 5),
        ("systemd-timers", 5),
        ("migrate-once", 3),
        ("coming-from-flock", 4),
        ("coming-from-other-locks", 1),
    ] {
        let page = guide(name);
        let user = User::of(&page);
        for script in ["report.sh", "sync.sh", "scheduler.sh"] {
            user.script(script, "");
        }
        if name == "systemd-timers" {
            // The unit refers to the script of the other page.
            let other = User::of(&guide("run-a-cron-job-once"));
            let script = std::fs::read_to_string(other.0.file("once-a-day.sh")).unwrap();
            user.script("once-a-day.sh", &script);
        }
        let found = unattended_commands(&page);
        assert_eq!(found.len(), commands, "{name}: {found:?}");
        for command in found {
            // The first run does the job. The second finds that it is done.
            for _ in 0..2 {
                let quick = command.replace("--at-least 30s", "--at-least 10ms");
                let quick = quick.replace("--at-least 2m", "--at-least 10ms");
                let cron = user.run_by_cron(&quick);
                let printed = (cron.code, &*cron.stdout, &*cron.stderr);
                assert_eq!(printed, (Some(0), "", ""), "{name}: {quick}");
            }
        }
    }
}

#[test]
fn recipes_print_nothing_in_a_cron_job_while_another_machine_works() {
    for (name, commands) in [
        ("run-a-cron-job-once", 4),
        ("systemd-timers", 3),
        ("coming-from-flock", 2),
        ("coming-from-other-locks", 1),
    ] {
        let page = guide(name);
        let user = User::of(&page);
        user.script("report.sh", "echo reported");
        user.script("sync.sh", "echo synced");
        let mut found = unattended_commands(&page);
        found.retain(|command| command.contains("-E 0") || command.starts_with("./report-once"));
        assert_eq!(found.len(), commands, "{name}: {found:?}");
        let held = "leasehold run nightly --also sync -c 'echo ready; cat >/dev/null'";
        let store = user.0.file("system.db");
        user.run_by_cron("leasehold list");
        let mut holder = user.start(&format!(
            "env LEASEHOLD_SYSTEM_STORE={} {held}",
            store.display()
        ));
        holder.expect("ready");
        for command in found {
            let cron = user.run_by_cron(&command);
            let printed = (cron.code, &*cron.stdout, &*cron.stderr);
            assert_eq!(printed, (Some(0), "", ""), "{name}: {command}");
        }
        holder.ends_with(0);
    }
}

#[test]
fn unit_of_a_timer_runs_the_job_once() {
    let user = User::new();
    let page = guide("systemd-timers");
    let mut commands = unattended_commands(&page).into_iter();
    let unit = commands.next().unwrap();
    assert_eq!(format!("{unit}\n"), page.example("leasehold gate"));
    user.script("report.sh", "exit 3");
    assert_eq!(user.run_by_cron(&unit).code, Some(3));
    user.script("report.sh", "echo reported");
    assert_eq!(user.run_by_cron(&unit).ok().stdout, "reported\n");
    assert_eq!(user.run_by_cron(&unit).ok().stdout, "");
}

#[test]
fn instances_migrate_one_after_the_other() {
    let page = guide("migrate-once");
    let user = User::of(&page);
    user.script(
        "migrate.sh",
        "mkdir busy || exit; [ -e version-1 ] || echo migrated; touch version-1; rmdir busy",
    );
    user.script("server.sh", "echo serving");
    let start = page.line("./start.sh");
    let mut printed = std::thread::scope(|scope| {
        let instances = [(); 3].map(|()| scope.spawn(|| user.run(&start).ok()));
        instances.map(|instance| {
            let ran = instance.join().unwrap();
            assert_eq!(ran.stderr, "");
            ran.stdout
        })
    });
    printed.sort();
    assert_eq!(printed, ["migrated\nserving\n", "serving\n", "serving\n"]);

    user.script("migrate.sh", "exit 3");
    let failed = user.run(&start);
    assert_eq!((failed.code, &*failed.stdout), (Some(3), ""));
}

#[test]
fn version_in_the_body_saves_the_start_of_the_migration_tool() {
    let page = guide("migrate-once");
    let user = User::of(&page);
    user.script("migrate.sh", "echo migrated");
    let migrate = page.line("./migrate-to-version.sh 2");
    assert_eq!(user.run(&migrate).ok().stdout, "migrated\n");
    assert_eq!(user.run(&migrate).ok().stdout, "");
    let next = migrate.replace("2026", "2027");
    assert_eq!(user.run(&next).ok().stdout, "migrated\n");
    // A run without `--keep-body` clears it.
    let nested = page.line("--nested --");
    assert_eq!(user.run(&nested).ok().stdout, "migrated\n");
    assert_eq!(user.run(&next).ok().stdout, "migrated\n");
}

#[test]
fn sidecar_says_whether_its_replica_leads() {
    let page = guide("leader-sidecar");
    let user = User::of(&page);
    assert_eq!(user.run("./is-leader.sh").code, Some(1));
    let sidecar = page.line("./lead.sh");
    let by_cron = user.run_by_cron(&format!(
        "{sidecar} & until ./is-leader.sh >first; do sleep 0.01; done; kill $!; wait"
    ));
    let printed = (by_cron.code, &*by_cron.stdout, &*by_cron.stderr);
    assert_eq!(printed, (Some(0), "", ""));

    let sidecar = user.start(&sidecar);
    let fence = eventually("the leader", || {
        let asked = user.run("./is-leader.sh");
        (asked.code == Some(0)).then_some(asked.stdout)
    });
    assert_eq!(fence.trim(), user.0.show("scheduler")["fence"].to_string());
    sidecar.signal(Signal::SIGTERM);
    sidecar.wait();
    assert!(!user.0.is_held("scheduler"));
    assert_eq!(user.run("./is-leader.sh").code, Some(1));
    // As if the sidecar had been killed, and the file had stayed.
    user.run("echo 7 >leader").ok();
    assert_eq!(user.run("./is-leader.sh").ok().stdout, "7\n");
    user.run("touch -d '3 seconds ago' leader").ok();
    assert_eq!(user.run("./is-leader.sh").code, Some(1));
}

#[test]
fn a_script_locks_itself_as_with_flock() {
    let page = guide("coming-from-flock");
    let user = User::of(&page);
    user.script("report.sh", UNTIL_CLOSED);
    let locked = page.line("./report-once.sh");
    let mut first = user.start(&locked);
    first.expect("./report.sh runs");
    let second = user.run(&locked).ok();
    assert_eq!((&*second.stdout, &*second.stderr), ("", ""));
    let nested = user.run("LEASEHOLD_NAME=nightly ./report-once.sh").ok();
    assert_eq!(nested.stdout, "./report.sh runs\n");
    first.ends_with(0);
}

#[test]
fn a_candidate_leads_when_the_leader_ends() {
    let user = User::new();
    user.script("scheduler.sh", UNTIL_CLOSED);
    let candidate = guide("elect-a-leader").line("leasehold run scheduler");
    let mut leader = user.start(&candidate);
    leader.expect("./scheduler.sh runs");
    let mut next = user.start(&candidate);
    next.expect("waiting for scheduler");
    leader.ends_with(0);
    next.expect("./scheduler.sh runs");
    next.ends_with(0);
}

#[test]
fn items_move_on_by_exit_code() {
    let user = User::new();
    user.script(
        "pack.sh",
        "read -r fruit; echo \"packing $fruit\"; test \"$fruit\" != stones",
    );
    let page = guide("work-queue");
    let put = page.line("leasehold put order-17 --state REQUESTED --body");
    user.run(&put).ok();
    user.run("leasehold put order-18 --state REQUESTED --body stones")
        .ok();
    let working = user.start(&page.line("leasehold work").replace(" --drain", ""));
    let state = |name| user.0.show(name)["state"].clone();
    eventually("both items", || {
        (state("order-17") == "DONE" && state("order-18") == "FAILED").then_some(())
    });
    working.signal(Signal::SIGINT);
    // Four at once, so in any order.
    let lines = working.ends_with(1);
    for body in ["three apples", "stones"] {
        let packed = format!("packing {body}");
        assert!(lines.contains(&packed), "{packed}: {lines:?}");
    }
    let done = user.run(&page.line("list --state DONE")).ok().stdout;
    assert!(
        done.contains("order-17") && !done.contains("order-18"),
        "{done}"
    );

    user.run(&put.replace("17", "19")).ok();
    let claimed = user.run(&page.line("leasehold claim")).ok().stdout;
    let claimed: Value = serde_json::from_str(&claimed).unwrap();
    assert_eq!(
        (&claimed["name"], &claimed["body"]),
        (&"order-19".into(), &"three apples".into())
    );

    let again = page.example("list --state DONE");
    user.run(again.lines().last().unwrap()).ok();
    let shown = user.0.show("order-17");
    assert_eq!(
        (&shown["state"], &shown["body"]),
        (&"REQUESTED".into(), &"three apples".into())
    );
}

#[test]
fn store_is_measured_and_examined() {
    let user = User::new();
    let measure = commands().line("leasehold bench");
    let hasty = measure.replace("--for 1s", "--for 100ms --warm-up 10ms --names 100");
    let measured = user.run(&hasty).ok().stdout;
    let rows = measured.lines().take(3);
    let tasks: Vec<_> = rows
        .map(|line| line.split_whitespace().next().unwrap_or_default())
        .collect();
    assert_eq!(tasks, ["TASKS", "1", "16"], "{measured}");
    assert_eq!(user.run("leasehold list --held").ok().stdout, "");

    let examine = Page::read("docs/operations.md").line("leasehold doctor --store");
    let examine = examine.replace("postgres://leasehold@db1/app", "sqlite:leases.db");
    let examined = user.run(&examine).ok().stdout;
    assert!(examined.contains("Leases are "), "{examined}");
}

#[test]
fn service_on_a_network_requires_tokens_over_tls() {
    let user = User::new();
    leasehold_testbed::certificates(user.0.path()).unwrap();
    user.script("deploy.sh", "echo deployed");
    let page = Page::read("docs/operations.md");
    let token = user.run(&page.line("--allow acquire:ci/ --allow read:"));
    let token = token.ok().stdout;
    let token = token.trim();
    assert!(token.starts_with("lh_"), "{token}");
    // Tests stay on this machine.
    let serve = page.line("leasehold serve --listen 0.0.0.0");
    let mut service = user.start(&serve.replace("0.0.0.0:12345", "127.0.0.1:0"));
    let listening = service.expect("listening on https://");
    let (_, address) = listening.split_once("https://").unwrap();
    let deploy = page.line("ci/deploy -- ./deploy.sh");
    let deploy = deploy.replace("db1:12345", address.trim());
    let as_ci = deploy.replace("lh_…", token);
    assert_eq!(user.run(&as_ci).ok().stdout, "deployed\n");
    // Neither without the token nor for another name.
    for refused in [
        deploy.replace("LEASEHOLD_TOKEN=lh_… ", ""),
        as_ci.replace("ci/deploy", "other"),
    ] {
        let ran = user.run(&refused);
        assert_eq!((ran.code, &*ran.stdout), (Some(77), ""), "{ran:?}");
    }
    service.signal(Signal::SIGINT);
    service.ends_with(0);
}
