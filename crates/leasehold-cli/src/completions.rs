//! `leasehold completions`.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::arguments::{Arguments, Common};
use crate::exit::Failure;
use crate::output;

/// Print a completion script for a shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  leasehold completions bash >~/.local/share/bash-completion/completions/leasehold
  leasehold completions fish >~/.config/fish/completions/leasehold.fish
  leasehold completions zsh >~/.zfunc/_leasehold")]
pub(crate) struct Completions {
    /// Shell to print the script for.
    shell: Shell,
}

impl Completions {
    pub(crate) fn execute(self, common: &Common) -> Result<u8, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut Arguments::command(),
            "leasehold",
            &mut script,
        );
        let script = String::from_utf8_lossy(&script);
        if common.json {
            output::json(&script)?;
        } else {
            output::raw(&script)?;
        }
        Ok(0)
    }
}
