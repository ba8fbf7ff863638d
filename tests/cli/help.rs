//! The help of each command, and the variables of the environment.

use crate::support::*;

fn stdout(arguments: &[&str]) -> String {
    let output = zoolet(arguments).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_command_has_its_own_help_with_an_example() {
    let overview = stdout(&["--help"]);
    let commands: Vec<&str> = overview.lines().filter_map(|line| line.strip_prefix("zoolet ")).collect();
    for line in commands.iter().filter(|line| line.contains("  ")) {
        let (usage, _) = line.split_once("  ").unwrap();
        let words: Vec<&str> = usage.split(' ').take_while(|word| word.starts_with(char::is_lowercase)).collect();
        let words: Vec<&str> = words.iter().flat_map(|word| word.split('|').next()).collect();
        let help = stdout(&[&words[..], &["--help"]].concat());
        assert!(help.starts_with(&format!("zoolet {usage}\n")), "{words:?}: {help}");
        assert!(help.contains(&format!("\nExamples:\n  zoolet {}", words.join(" "))), "{words:?}: {help}");
        let others = commands.iter().filter(|other| !other.starts_with(usage));
        others.for_each(|other| assert!(!help.contains(other), "{words:?} shows {other}"));
        assert_eq!(stdout(&[&["help"], &words[..]].concat()), help);
    }
}

#[test]
fn environment_variables_replace_options() {
    let scratch = Scratch::new();
    let [one, other] = free_ports().map(|port: u16| format!("127.0.0.1:{port}"));
    let status = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = zoolet(arguments);
        command.envs(variables.iter().copied()).current_dir(scratch.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, shown, _) = status(&["status"], &[("ZOOLET_SERVER", &one)]);
    assert!(code == Some(1) && shown.contains(&one), "{shown}");
    let (_, shown, _) = status(&["status", "--server", &other], &[("ZOOLET_SERVER", &one)]);
    assert!(shown.contains(&other) && !shown.contains(&one), "{shown}");

    std::fs::write(scratch.join("zoolet.toml"), format!("clients = \"{other}\"\n")).unwrap();
    let (_, shown, _) = status(&["status"], &[("ZOOLET_CONFIG", "zoolet.toml")]);
    assert!(shown.contains(&other), "{shown}");
    let (code, shown, said) = status(&["serve", "--check"], &[("ZOOLET_CONFIG", "zoolet.toml")]);
    assert!(code == Some(0) && shown.contains(&other), "{shown}{said}");
    let (code, _, said) = status(&["serve", "--check"], &[("ZOOLET_CONFIG", "absent.toml")]);
    assert!(code == Some(2) && said.starts_with("zoolet: cannot read absent.toml: "), "{said}");
    let (code, _, said) = status(&["status"], &[("ZOOLET_SERVER", "gw-a:")]);
    assert!(code == Some(2) && said.starts_with("zoolet: ZOOLET_SERVER = gw-a:: allowed is HOST:PORT"), "{said}");
}
