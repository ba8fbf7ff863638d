//! Four-letter words.

/// The words this server answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub enum Word {
    Ruok,
    Srvr,
    Stat,
    Mntr,
    Isro,
    Envi,
    Conf,
    Cons,
    Wchs,
}

impl Word {
    /// Every word.
    pub const ALL: [Self; 9] =
        [Self::Ruok, Self::Srvr, Self::Stat, Self::Mntr, Self::Isro, Self::Envi, Self::Conf, Self::Cons, Self::Wchs];

    /// The word as it is sent.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ruok => "ruok",
            Self::Srvr => "srvr",
            Self::Stat => "stat",
            Self::Mntr => "mntr",
            Self::Isro => "isro",
            Self::Envi => "envi",
            Self::Conf => "conf",
            Self::Cons => "cons",
            Self::Wchs => "wchs",
        }
    }
}

/// Which words are answered (4lw.commands.whitelist).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whitelist(u16);

impl Whitelist {
    /// No word.
    pub const NONE: Self = Self(0);
    /// Every word: `*`.
    pub const ALL: Self = Self(u16::MAX);

    /// ZooKeeper's notation: words separated by commas, or `*`. Unknown words allow nothing, as in ZooKeeper.
    pub fn parse(list: &str) -> Self {
        if list.trim() == "*" {
            return Self::ALL;
        }
        let named = |word: &Word| list.split(',').any(|name| name.trim() == word.text());
        Word::ALL.into_iter().filter(named).fold(Self::NONE, Self::with)
    }

    /// This and `word`. A server with `readonlymode.enabled` also answers `isro`.
    #[must_use]
    pub const fn with(self, word: Word) -> Self {
        Self(self.0 | 1 << word as u16)
    }

    /// Whether `word` is answered.
    pub const fn allows(self, word: Word) -> bool {
        self.0 & 1 << word as u16 != 0
    }
}

impl Default for Whitelist {
    /// ZooKeeper's default: `srvr` alone.
    fn default() -> Self {
        Self::NONE.with(Word::Srvr)
    }
}
