//! `zoolet-differential`: see README.md beside this crate.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use zoolet_differential::compare::{Difference, Verdict, compare};
use zoolet_differential::generate::{Shape, generate, kills};
use zoolet_differential::intended::RULES;
use zoolet_differential::play::{NO_ANSWER, play};
use zoolet_differential::reply::What;
use zoolet_differential::script::Script;
use zoolet_differential::servers::{PORTS, ServerCommand, Side};
use zoolet_differential::shrink::{Effort, shrink};

const USAGE: &str = "zoolet-differential [OPTION VALUE]...: plays the same scripts to Apache ZooKeeper and to zoolet, compares all answers
  --zoolet COMMAND       started with the path of a zoo.cfg appended (target/release/zoolet serve --config)
  --zookeeper COMMAND    likewise (tests/foreign/zookeeper-java org.apache.zookeeper.server.quorum.QuorumPeerMain)
  --seeds LIST           1,2,5-9; none when only --random or --replay is wanted (1-8)
  --random COUNT         that many further seeds, drawn from the clock and printed (0)
  --operations COUNT     requests per seed (3000)
  --scripts WHICH        all or none of the written scripts, which are played before the seeds (all)
  --rows WHICH           all: it is a failure when a row of the table of intended differences was never met (any)
  --sessions COUNT       sessions per seed (4)
  --port PORT            this one and the next 17 are used (23000)
  --replay FILE          plays this script instead of seeds, and shrinks nothing
  --show SEED            prints the script of a seed and does nothing else
  --attempts COUNT       how often a difference is played again to make its script smaller (400)";

struct Options {
    zoolet: ServerCommand,
    zookeeper: ServerCommand,
    seeds: Vec<u64>,
    shape: Shape,
    port: u16,
    replay: Option<PathBuf>,
    show: Option<u64>,
    attempts: usize,
    scripts: bool,
    every_row: bool,
}

/// Scripts written by hand, for situations that seeds meet rarely or never.
const SCRIPTS: [(&str, &str); 7] = [
    ("rows", include_str!("../scripts/rows.script")),
    ("root-acl", include_str!("../scripts/root-acl.script")),
    ("expiry", include_str!("../scripts/expiry.script")),
    ("skip-acl", include_str!("../scripts/skip-acl.script")),
    ("quota", include_str!("../scripts/quota.script")),
    ("extensions-off", include_str!("../scripts/extensions-off.script")),
    ("read-only", include_str!("../scripts/read-only.script")),
];

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        zoolet: ServerCommand::new("target/release/zoolet serve --config"),
        zookeeper: ServerCommand::new("tests/foreign/zookeeper-java org.apache.zookeeper.server.quorum.QuorumPeerMain"),
        seeds: (1..=8).collect(),
        shape: Shape { operations: 3000, sessions: 4 },
        port: 23000,
        replay: None,
        show: None,
        attempts: 400,
        scripts: true,
        every_row: false,
    };
    let mut random = 0;
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
        let number = || value.parse::<usize>().map_err(|_| format!("{option} {value}: allowed is a number"));
        match option.as_str() {
            "--zoolet" => options.zoolet = ServerCommand::new(&value),
            "--zookeeper" => options.zookeeper = ServerCommand::new(&value),
            "--seeds" => options.seeds = seeds(&value)?,
            "--random" => random = number()?,
            "--operations" => options.shape.operations = number()?,
            "--sessions" => options.shape.sessions = number()?.clamp(1, 64),
            "--port" => options.port = value.parse().map_err(|_| format!("--port {value}: allowed is 1 to 65518"))?,
            "--replay" => options.replay = Some(value.into()),
            "--show" => options.show = Some(value.parse().map_err(|_| format!("--show {value}: allowed is a seed"))?),
            "--scripts" => options.scripts = one_of(&option, &value, ["none", "all"])?,
            "--rows" => options.every_row = one_of(&option, &value, ["any", "all"])?,
            "--attempts" => options.attempts = number()?,
            _ => return Err(format!("no option is called {option}")),
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    options.seeds.extend((0..random as u64).map(|number| (now % 1_000_000_000) * 10 + number));
    Ok(options)
}

/// Returns whether `value` is the second of two words.
fn one_of(option: &str, value: &str, [no, yes]: [&str; 2]) -> Result<bool, String> {
    if value == no || value == yes {
        Ok(value == yes)
    } else {
        Err(format!("{option} {value}: allowed is {no} or {yes}"))
    }
}

fn seeds(list: &str) -> Result<Vec<u64>, String> {
    let mut seeds = Vec::new();
    for part in list.split(',').filter(|part| *part != "none") {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number =
            |text: &str| text.parse::<u64>().map_err(|_| format!("--seeds {list}: allowed is a list as 1,2,5-9"));
        seeds.extend(number(from)?..=number(to)?);
    }
    Ok(seeds)
}

fn run(options: &Options) -> io::Result<bool> {
    if let Some(seed) = options.show {
        print!("{}", generate(seed, options.shape));
        return Ok(true);
    }
    if let Some(file) = &options.replay {
        let script = Script::parse(&std::fs::read_to_string(file)?).map_err(io::Error::other)?;
        let verdict = Pair::new(options).verdict(&script)?;
        return Ok(told("the script", &script, &verdict, Duration::ZERO));
    }
    let mut table = [0; RULES.len()];
    let (mut passed, mut failed, mut operations, mut replies, mut events) = (0, 0, 0, 0, 0);
    let mut repeated = 0;
    let written = SCRIPTS.iter().filter(|_| options.scripts).map(|(name, text)| {
        let script = Script::parse(text).map_err(|error| io::Error::other(format!("{name}: {error}")));
        Ok::<_, io::Error>((format!("script {name}"), script?))
    });
    let seeds = options.seeds.iter().map(|seed| Ok((format!("seed {seed}"), generate(*seed, options.shape))));
    for play in written.chain(seeds) {
        let (name, script) = play?;
        let began = Instant::now();
        let mut pair = Pair::new(options);
        let mut verdict = pair.verdict(&script)?;
        let mut unanswered: Vec<usize> = Vec::new();
        while let Some(difference) = verdict.difference.as_ref().filter(|difference| is_unanswered(difference)) {
            unanswered.push(difference.step);
            if unanswered.iter().filter(|step| **step == difference.step).count() > REPETITIONS {
                break;
            }
            repeated += 1;
            pair.servers = None;
            verdict = pair.verdict(&script)?;
        }
        if told(&name, &script, &verdict, began.elapsed()) {
            passed += 1;
        } else {
            failed += 1;
        }
        operations += script.operations();
        (replies, events) = (replies + verdict.replies, events + verdict.events);
        table.iter_mut().zip(verdict.used).for_each(|(sum, used)| *sum += used);
        if let Some(difference) = verdict.difference {
            explain(options.attempts, &mut pair, &name, script, difference)?;
        }
    }
    println!("\nintended differences (docs/reference/zookeeper.md), and how often each was met:");
    for (rule, used) in RULES.iter().zip(table) {
        let note = if used == 0 { "  NEVER MET by these seeds" } else { "" };
        println!("{used:>8}  {}: {}{note}", rule.surface, rule.reason);
    }
    println!("\n{operations} requests and handshakes, {replies} replies and {events} events compared");
    if repeated > 0 {
        println!("{repeated} plays repeated, because Apache ZooKeeper left a request unanswered");
    }
    println!("{passed} passed, {failed} failed");
    let missed = table.iter().filter(|used| **used == 0).count();
    if options.every_row && missed > 0 {
        println!(
            "{missed} rows of the table were never met: they excuse what no longer differs, or the scripts have lost them"
        );
    }
    Ok(failed == 0 && !(options.every_row && missed > 0))
}

/// Maximum number of repeated plays for a step in which Apache ZooKeeper leaves a request without an
/// answer.
///
/// ZooKeeper 3.8 forgets about one request in tens of thousands, a different one in each play. A step
/// with an unanswered request in each of these plays is a difference.
const REPETITIONS: usize = 2;

/// Returns whether Apache ZooKeeper left a request without an answer, and zoolet did not.
///
/// Answers that do not wait for their turn may stand before the silence.
fn is_unanswered(difference: &Difference) -> bool {
    let silent = difference.theirs.iter().skip(difference.alike.0).any(|item| item.what == What::Silence);
    let answered = !difference.ours.iter().any(|item| matches!(item.what, What::Silence | What::Closed));
    let control = difference.why.starts_with(NAMES[0]) && difference.why.contains(NO_ANSWER);
    (silent && answered) || (control && !difference.why.contains(&format!("{}{BROKE_OFF}", NAMES[1])))
}

fn told(what: &str, script: &Script, verdict: &Verdict, took: Duration) -> bool {
    let (replies, events, used) = (verdict.replies, verdict.events, verdict.used.iter().sum::<u64>());
    let seconds = took.as_secs_f32();
    let operations = script.operations();
    let counts =
        format!("{operations} operations, {replies} replies, {events} events, {used} intended, {seconds:.1} s");
    match &verdict.difference {
        None => println!("{what}: equal; {counts}"),
        Some(difference) => println!("{what}: DIFFERENT; {counts}\n{difference}"),
    }
    verdict.difference.is_none()
}

/// Shrinks a failing script and prints the result.
fn explain(effort: usize, pair: &mut Pair<'_>, name: &str, script: Script, difference: Difference) -> io::Result<()> {
    let effort = Effort { attempts: effort, time: Duration::from_secs(150) };
    pair.servers = None;
    let broke_off = difference.why.contains(BROKE_OFF);
    let mut failure = None;
    let (script, difference) = shrink(script, difference, effort, &mut |script| {
        let verdict = pair.verdict(script).map_err(|error| failure = Some(error)).ok()?;
        // After a difference the two servers have different histories, so the next attempt gets new
        // servers.
        if verdict.difference.is_some() {
            pair.servers = None;
        }
        // A play that broke off proves nothing about a difference in the answers.
        verdict.difference.filter(|found| found.why.contains(BROKE_OFF) == broke_off)
    });
    if let Some(error) = failure {
        println!("while shrinking: {error}");
    }
    let file = std::env::temp_dir().join(format!("zoolet-differential-{}.script", name.replace(' ', "-")));
    std::fs::write(&file, script.to_string())?;
    println!("{name}, as small as it was found:\n\n{script}\n{difference}");
    println!("zoolet-differential --replay {}", file.display());
    Ok(())
}

/// Marks the error of a server that did not serve the player's requests.
const BROKE_OFF: &str = " could not be played to: ";

/// Both servers, on data that is fresh after each difference.
struct Pair<'a> {
    options: &'a Options,
    servers: Option<[Side; 2]>,
    plays: u32,
}

const NAMES: [&str; 2] = ["Apache ZooKeeper", "zoolet"];

impl<'a> Pair<'a> {
    fn new(options: &'a Options) -> Self {
        Self { options, servers: None, plays: 0 }
    }

    fn start(&mut self, script: &Script) -> io::Result<&mut [Side; 2]> {
        let Options { port, zookeeper, zoolet, .. } = self.options;
        let place = |name: &str| std::env::temp_dir().join(format!("zoolet-differential-{port}-{name}"));
        let servers = match self.servers.take() {
            Some(servers) => servers,
            None => [
                Side::start(zookeeper, &place("zookeeper"), *port, script)?,
                Side::start(zoolet, &place("zoolet"), port + PORTS, script)?,
            ],
        };
        Ok(self.servers.insert(servers))
    }

    /// Plays to both at the same time.
    fn verdict(&mut self, script: &Script) -> io::Result<Verdict> {
        if script.steps.iter().flat_map(|step| step.action.ops()).any(kills) {
            return Err(io::Error::other("this script would stop Apache ZooKeeper for good (surface 13.6)"));
        }
        self.plays += 1;
        let root = format!("/d{}", self.plays);
        let servers = self.start(script)?;
        let played = std::thread::scope(|scope| {
            let both = servers.each_mut().map(|side| {
                scope.spawn({
                    let root = &root;
                    move || play(script, side, root)
                })
            });
            both.map(|one| one.join().unwrap_or_else(|_| Err(io::Error::other("the player panicked"))))
        });
        let mut why = String::new();
        for ((server, name), played) in servers.iter_mut().zip(NAMES).zip(&played) {
            if let Err(error) = played {
                let state = if server.lives() { "its process runs" } else { "its process has ended" };
                why += &format!("{name}{BROKE_OFF}{error}; {state}; its output:\n{}\n", server.output());
            }
        }
        match played {
            [Ok(theirs), Ok(ours)] => Ok(compare(script, &root, &theirs, &ours)),
            _ => {
                let step = script.steps.len();
                let difference = Difference { step, session: 0, why, theirs: vec![], ours: vec![], alike: (0, 0) };
                Ok(Verdict { difference: Some(difference), ..Verdict::default() })
            }
        }
    }
}
