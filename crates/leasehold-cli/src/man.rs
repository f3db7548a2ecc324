//! `leasehold man`.

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _};
use clap_mangen::Man as Page;

use crate::arguments::{Arguments, Common};
use crate::exit::{Failure, USAGE};
use crate::output;

/// Print a manual page, or write the pages of all commands into a folder.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold man | man -l -
  leasehold man run | man -l -
  leasehold man --folder ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Command to print the page of [default: the overview].
    #[arg(conflicts_with = "folder")]
    command: Option<String>,

    /// Write a page for every command into this folder instead.
    #[arg(long, value_name = "PATH")]
    folder: Option<PathBuf>,
}

impl Man {
    pub(crate) fn execute(self, common: &Common) -> Result<u8, Failure> {
        let command = Arguments::command();
        if let Some(folder) = &self.folder {
            return write_all(folder, command).map_err(|error| {
                Failure::system(
                    &format!("cannot write the manual into {}", folder.display()),
                    error,
                )
            });
        }
        let command = match &self.command {
            Some(name) => subcommand(command, name)?,
            None => command,
        };
        let mut page = Vec::new();
        Page::new(command)
            .render(&mut page)
            .map_err(|error| Failure::system("cannot render the manual page", error))?;
        let page = String::from_utf8_lossy(&page);
        if common.json {
            output::json(&page)?;
        } else {
            output::raw(&page)?;
        }
        Ok(0)
    }
}

fn subcommand(mut command: clap::Command, name: &str) -> Result<clap::Command, Failure> {
    // Adds the global options to the subcommands.
    command.build();
    match command.find_subcommand(name) {
        Some(command) => Ok(command.clone()),
        None => Err(Failure::new(
            USAGE,
            format!("unknown command `{name}`: see `leasehold --help`"),
        )),
    }
}

fn write_all(folder: &Path, command: clap::Command) -> std::io::Result<u8> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)?;
    Ok(0)
}
