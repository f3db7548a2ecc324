//! Starts servers: ports, folders, readiness.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::keeper::Keeper;
use crate::ports::Port;
use crate::recipe::{Member, Node, Recipe};
use crate::server::{Builder, Inner, READY_WITHIN, Server};
use crate::{Missing, clock};

/// Starts all members of a cluster at once, and waits until it serves.
pub(crate) fn start(
    recipe: &Arc<dyn Recipe>,
    nodes: usize,
    options: &Builder,
) -> Result<Vec<Server>, Missing> {
    recipe.installed()?;
    if options.clock_rate.is_some() {
        clock::installed(recipe.name())?;
    }
    // Retries once with other ports: another program may have taken one in the meantime.
    let started =
        start_once(recipe, nodes, options).or_else(|_| start_once(recipe, nodes, options));
    Ok(started.unwrap_or_else(|failure| panic!("{} did not start:\n{failure}", recipe.name())))
}

fn start_once(
    recipe: &Arc<dyn Recipe>,
    nodes: usize,
    options: &Builder,
) -> Result<Vec<Server>, String> {
    let ports: Vec<_> = (0..nodes).map(|_| (Port::free(), Port::free())).collect();
    let members: Vec<_> = ports
        .iter()
        .map(|(port, peer)| Member {
            port: port.number(),
            peer: peer.number(),
            tls: options.tls,
        })
        .collect();
    let mut servers = Vec::new();
    for (index, (port, peer)) in ports.into_iter().enumerate() {
        let (folder, mut keeper) =
            set_up(recipe.as_ref(), index, &members, options).map_err(|error| error.to_string())?;
        keeper.start();
        let inner = Arc::new(Inner {
            recipe: recipe.clone(),
            keeper: Mutex::new(keeper),
            port,
            peer,
            members: members.clone(),
            folder,
        });
        servers.push(Server { inner });
    }
    let first = &servers[0].inner;
    wait_until(|| recipe.form(&members).is_ok(), || first.keeper().is_up())
        .map_err(|()| first.end_of_log())?;
    for server in &servers {
        server.inner.wait_until_ready()?;
    }
    Ok(servers)
}

/// Creates a server's folder, and passes it to a keeper.
fn set_up(
    recipe: &dyn Recipe,
    index: usize,
    members: &[Member],
    options: &Builder,
) -> io::Result<(PathBuf, Keeper)> {
    // Other users may pass through it, because not every server runs as root.
    let folder = tempfile::Builder::new()
        .prefix(&format!("leasehold-{}-", recipe.name()))
        .permissions(std::fs::Permissions::from_mode(0o711))
        .tempdir_in(parent_folder())?;
    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    let node = Node {
        data: &data,
        index,
        members,
    };
    if let Some(files) = node.tls() {
        files.write(options.self_signed)?;
    }
    recipe.prepare(&node)?;
    let mut command = recipe.command(&node).map_err(io::Error::other)?;
    if let Some(rate) = options.clock_rate {
        clock::set(folder.path(), 0.0, rate)?;
        // As the server's own user, who could not open what root creates for the clock.
        let program = command.iter().position(|word| word == "--");
        let program = program.map_or(0, |end| end + 1);
        let clock = clock::before_command(recipe.name(), folder.path());
        command.splice(program..program, clock.map_err(io::Error::other)?);
    }
    command.extend(options.arguments.iter().cloned());
    let keeper = Keeper::of(folder.path(), recipe.stop_signal(), &command)?;
    // From here on the keeper removes the folder.
    Ok((folder.keep(), keeper))
}

/// Returns a folder in memory if there is enough: a kill loses no more there than on a disk, and a busy disk makes
/// tests slow and unreliable.
fn parent_folder() -> PathBuf {
    const PLENTY: u64 = 4 << 30;
    let memory = Path::new("/dev/shm");
    let free = nix::sys::statvfs::statvfs(memory)
        .map(|found| found.blocks_available() * found.fragment_size());
    if std::env::var_os("TMPDIR").is_none() && free.is_ok_and(|free| free >= PLENTY) {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// Polls until the server is ready, has ended, or the time limit is reached.
pub(crate) fn wait_until(
    mut is_ready: impl FnMut() -> bool,
    mut is_up: impl FnMut() -> bool,
) -> Result<(), ()> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(5);
    while started.elapsed() < READY_WITHIN {
        if is_ready() {
            return Ok(());
        }
        if !is_up() {
            return Err(());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    Err(())
}
