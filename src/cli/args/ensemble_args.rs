//! The options of `ensemble`.

use super::tools_args::number;
use super::{Arguments, Exit};
use crate::cli::ensemble::{BASE_PORT_MAX, Options};

pub(super) fn ensemble(arguments: &Arguments) -> Result<Options, Exit> {
    let mut options = Options::default();
    arguments.set("servers", &mut options.voters, |name, text| number(name, text, 1..=16).map(Some))?;
    arguments.set("observers", &mut options.observers, |name, text| number(name, text, 0..=15).map(Some))?;
    arguments.set("base-port", &mut options.base_port, |name, text| {
        number(name, text, 1..=BASE_PORT_MAX.into()).map(Some)
    })?;
    arguments.set("data", &mut options.data, |_, text| Ok(text.into()))?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse_line;
    use super::super::{Command, Tool};

    #[test]
    fn every_option_of_ensemble_is_parsed() {
        let words = "ensemble --servers 5 --observers 1 --base-port 3000 --data d";
        let Ok(Command::Tool(Tool::Ensemble(options))) = parse_line(words) else { panic!("not ensemble") };
        assert_eq!((options.voters, options.observers, options.base_port), (Some(5), Some(1), Some(3000)));
        assert_eq!(options.data, std::path::Path::new("d"));
    }

    #[test]
    fn invalid_usage_names_option_value_and_allowed_values() {
        for (words, expected) in [
            ("ensemble --servers 0", "2 --servers = 0: allowed is a whole number from 1 to 16"),
            ("ensemble --base-port 65000", "2 --base-port = 65000: allowed is a whole number from 1 to 64812"),
            ("ensemble --frob", "2 ensemble: invalid option '--frob'"),
        ] {
            let Err(error) = parse_line(words) else { panic!("{words:?} was accepted") };
            assert!(error.starts_with(expected), "{words:?} gave {error:?}");
        }
    }
}
