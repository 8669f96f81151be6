//! Completion scripts and manual pages, generated from a command line.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap_complete::Shell;

use crate::data;
use crate::exit::{Exit, Outcome, Problem, print};

/// Arguments of `bulla completions`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum CompletionsCommand {
    /// Install the completion script of your shell [default: the shell in $SHELL]
    Install {
        /// The shell: bash, fish or zsh
        shell: Option<Shell>,
    },
    /// Print the completion script for bash
    Bash,
    /// Print the completion script for elvish
    Elvish,
    /// Print the completion script for fish
    Fish,
    /// Print the completion script for PowerShell
    #[command(name = "powershell")]
    PowerShell,
    /// Print the completion script for zsh
    Zsh,
}

impl CompletionsCommand {
    /// Prints or installs the completion script of `command`.
    pub fn run(self, command: clap::Command) -> Outcome<Exit> {
        let shell = match self {
            Self::Install { shell } => return install(shell.or_else(Shell::from_env), command),
            Self::Bash => Shell::Bash,
            Self::Elvish => Shell::Elvish,
            Self::Fish => Shell::Fish,
            Self::PowerShell => Shell::PowerShell,
            Self::Zsh => Shell::Zsh,
        };
        print(script(shell, command).trim_end())?;
        Ok(Exit::Ok)
    }
}

/// Returns clap's script, which completes commands and options. For the shells that [`CompletionsCommand::Install`] supports, the
/// script also completes the names of the server's objects.
fn script(shell: Shell, mut command: clap::Command) -> String {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, &name, &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Bash => format!("{script}{}", BASH.replace("PROGRAM", &name)),
        Shell::Fish => format!("{script}{}", FISH.replace("PROGRAM", &name)),
        Shell::Zsh => zsh(&script, &name),
        _ => script.into_owned(),
    }
}

/// Completes object names where clap's bash script completes no option. The names are assigned to bash's reply directly, because
/// `compgen -W` would expand them.
const BASH: &str = r#"
_PROGRAM_names() {
    _PROGRAM "$@"
    local word="${COMP_WORDS[COMP_CWORD]}" names name
    [[ "$word" == -* ]] && return
    mapfile -t names < <(PROGRAM complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    (( ${#names[@]} )) && COMPREPLY=()
    for name in "${names[@]}"; do
        COMPREPLY+=("$name")
    done
    return 0
}
complete -F _PROGRAM_names -o bashdefault -o default PROGRAM
"#;

const FISH: &str = r#"
function __PROGRAM_names
    set -l words (commandline -opc) (commandline -ct)
    PROGRAM complete -- $words[2..-1] 2>/dev/null
end
complete -c PROGRAM -n 'not string match -q -- "-*" (commandline -ct)' -a '(__PROGRAM_names)'
"#;

const ZSH: &str = r#"_PROGRAM_names() {
    local -a names
    names=("${(@f)$(PROGRAM complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$names" ]]; then
        compadd -a names
    else
        _default
    fi
}

"#;

/// Changes clap's zsh script: positional arguments complete to object names instead of files. The function for this is inserted
/// after the first line, `#compdef`.
fn zsh(script: &str, name: &str) -> String {
    let is_positional = |line: &str| line.starts_with("':") || line.starts_with("'*:");
    let mut text = String::new();
    for (at, line) in script.lines().enumerate() {
        match line.strip_suffix(":_default' \\").filter(|_| is_positional(line)) {
            Some(start) => text.extend([start, ":_", name, "_names' \\\n"]),
            None => text.extend([line, "\n"]),
        }
        if at == 0 {
            text.push_str(&ZSH.replace("PROGRAM", name));
        }
    }
    text
}

/// Writes the script to the user's completion folder of the shell.
fn install(shell: Option<Shell>, command: clap::Command) -> Outcome<Exit> {
    let name = command.get_name().to_owned();
    let Some(path) = shell.and_then(|shell| completion_file(shell, &name)) else {
        return Err(Problem::usage("cannot find the folder for the completions of this shell")
            .hint("give the shell: bulla completions install bash (or fish, zsh); or print a script and install it yourself"));
    };
    let script = shell.map(|shell| script(shell, command)).unwrap_or_default();
    let folder = path.parent().unwrap_or(&path);
    std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, script)).map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", path.display()))
            .hint("print the script and install it yourself: bulla completions bash")
    })?;
    print(&format!("completions are installed in {}: open a new shell", path.display()))?;
    if shell == Some(Shell::Zsh) {
        print(
            "add this line to ~/.zshrc, before compinit, so that zsh reads the folder: fpath=(~/.zfunc $fpath)",
        )?;
    }
    Ok(Exit::Ok)
}

/// Returns the file of a user's completions; `None` for shells without such a folder, or without a home folder.
fn completion_file(shell: Shell, name: &str) -> Option<PathBuf> {
    match shell {
        Shell::Bash => {
            Some(data::base("XDG_DATA_HOME", ".local/share")?.join("bash-completion/completions").join(name))
        }
        Shell::Fish => {
            Some(data::base("XDG_CONFIG_HOME", ".config")?.join(format!("fish/completions/{name}.fish")))
        }
        Shell::Zsh => Some(data::base("", ".zfunc")?.join(format!("_{name}"))),
        _ => None,
    }
}

/// Writes a manual page for each subcommand of `command` into `folder`.
pub fn man(folder: &Path, command: clap::Command) -> Outcome<Exit> {
    std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder)).map_err(
        |error| {
            Problem::new(Exit::Machine, format_args!("cannot write to {}: {error}", folder.display()))
                .hint("choose a folder that you may write to")
        },
    )?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    fn of(shell: Shell) -> String {
        let show = Command::new("show").arg(Arg::new("name").required(true));
        let read = Command::new("read").arg(Arg::new("file").value_hint(clap::ValueHint::FilePath));
        script(shell, Command::new("it").subcommands([show, read]))
    }

    #[test]
    fn scripts_of_installed_shells_ask_for_names() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let text = of(shell);
            assert!(text.contains("it complete -- ") && !text.contains("PROGRAM"), "{text}");
        }
        let zsh = of(Shell::Zsh);
        assert!(zsh.starts_with("#compdef it\n_it_names() {\n"), "{zsh}");
        assert_eq!(zsh.matches(":_it_names' \\\n").count(), 1, "files are completed as before: {zsh}");
    }
}
