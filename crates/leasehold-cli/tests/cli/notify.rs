//! What a service manager hears of `serve`.

use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use nix::sys::signal::Signal;

use crate::support::{Home, PATIENCE, Running};

/// The manager's end of the socket.
struct Manager {
    socket: UnixDatagram,
    name: String,
}

impl Manager {
    fn at_path(home: &Home) -> Self {
        let path = home.file("notify");
        Self::bound(UnixDatagram::bind(&path), path.to_str().unwrap().to_owned())
    }

    fn at_abstract_name(home: &Home) -> Self {
        // The folder is this test's own, and so is the name.
        let name = home.path().to_str().unwrap();
        let address = SocketAddr::from_abstract_name(name).unwrap();
        Self::bound(UnixDatagram::bind_addr(&address), format!("@{name}"))
    }

    fn bound(socket: std::io::Result<UnixDatagram>, name: String) -> Self {
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, name }
    }

    fn start(&self, home: &Home, variables: &[(&str, &str)]) -> Running {
        let mut command = home.command(["serve", "--listen", "127.0.0.1:0"]);
        command.env("NOTIFY_SOCKET", &self.name);
        command.envs(variables.iter().copied());
        Running::start(&mut command)
    }

    /// The next thing that it is told.
    #[track_caller]
    fn hear(&self) -> String {
        let mut words = [0; 4096];
        let length = self.socket.recv(&mut words).unwrap();
        String::from_utf8(words[..length].to_vec()).unwrap()
    }

    /// Everything up to the word that the service stops.
    #[track_caller]
    fn hear_to_the_end(&self) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let words = self.hear();
            if words.starts_with("STOPPING=1\n") {
                return heard;
            }
            heard.push(words);
        }
    }
}

#[test]
fn it_is_ready_once_it_answers_lives_while_it_runs_and_says_that_it_stops() {
    let home = Home::new();
    for manager in [Manager::at_path(&home), Manager::at_abstract_name(&home)] {
        let service = manager.start(&home, &[("WATCHDOG_USEC", "100000")]);
        let ready = manager.hear();
        let status = ready.strip_prefix("READY=1\nSTATUS=listening on http://");
        TcpStream::connect(status.expect(&ready)).unwrap();
        for _ in 0..3 {
            assert_eq!(manager.hear(), "WATCHDOG=1");
        }
        service.signal(Signal::SIGTERM);
        manager.hear_to_the_end();
        service.ends_with(0);
    }
}

#[test]
fn a_watchdog_of_another_process_hears_nothing() {
    let home = Home::new();
    let manager = Manager::at_path(&home);
    let variables = [("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")];
    let service = manager.start(&home, &variables);
    assert!(manager.hear().starts_with("READY=1\n"));
    service.signal(Signal::SIGTERM);
    assert_eq!(manager.hear_to_the_end(), [""; 0]);
    service.ends_with(0);
}

#[test]
fn it_serves_even_if_nobody_can_be_told() {
    let home = Home::new();
    let mut command = home.command(["serve", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", home.file("nobody"));
    let mut service = Running::start(&mut command);
    service.expect("cannot be told");
    service.expect("listening on");
    service.signal(Signal::SIGTERM);
    service.ends_with(0);
}
