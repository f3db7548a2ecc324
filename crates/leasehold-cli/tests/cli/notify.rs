//! The notifications of `serve` to a service manager.

use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use nix::sys::signal::Signal;

use crate::support::{Home, Running, TIMEOUT};

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
        // The folder is unique to this test, and so is the name.
        let name = home.path().to_str().unwrap();
        let address = SocketAddr::from_abstract_name(name).unwrap();
        Self::bound(UnixDatagram::bind_addr(&address), format!("@{name}"))
    }

    fn bound(socket: std::io::Result<UnixDatagram>, name: String) -> Self {
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { socket, name }
    }

    fn start(&self, home: &Home, variables: &[(&str, &str)]) -> Running {
        let mut command = home.command(["serve", "--listen", "127.0.0.1:0"]);
        command.env("NOTIFY_SOCKET", &self.name);
        command.envs(variables.iter().copied());
        Running::start(&mut command)
    }

    /// Receives the next notification.
    #[track_caller]
    fn receive(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// Receives notifications until the service announces that it stops.
    #[track_caller]
    fn receive_until_stopping(&self) -> Vec<String> {
        let mut messages = Vec::new();
        loop {
            let message = self.receive();
            if message.starts_with("STOPPING=1\n") {
                return messages;
            }
            messages.push(message);
        }
    }
}

#[test]
fn service_notifies_ready_keep_alive_and_stopping() {
    let home = Home::new();
    for manager in [Manager::at_path(&home), Manager::at_abstract_name(&home)] {
        let service = manager.start(&home, &[("WATCHDOG_USEC", "100000")]);
        let ready = manager.receive();
        let status = ready.strip_prefix("READY=1\nSTATUS=listening on http://");
        TcpStream::connect(status.expect(&ready)).unwrap();
        for _ in 0..3 {
            assert_eq!(manager.receive(), "WATCHDOG=1");
        }
        service.signal(Signal::SIGTERM);
        manager.receive_until_stopping();
        service.ends_with(0);
    }
}

#[test]
fn no_keep_alive_is_sent_for_another_process() {
    let home = Home::new();
    let manager = Manager::at_path(&home);
    let variables = [("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")];
    let service = manager.start(&home, &variables);
    assert!(manager.receive().starts_with("READY=1\n"));
    service.signal(Signal::SIGTERM);
    assert_eq!(manager.receive_until_stopping(), [""; 0]);
    service.ends_with(0);
}

#[test]
fn service_runs_even_if_the_manager_cannot_be_notified() {
    let home = Home::new();
    let mut command = home.command(["serve", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", home.file("missing"));
    let mut service = Running::start(&mut command);
    service.expect("cannot notify the service manager");
    service.expect("listening on");
    service.signal(Signal::SIGTERM);
    service.ends_with(0);
}
