use super::*;
use clap::CommandFactory;
use clap::error::ErrorKind;

fn parse(line: &str) -> Result<Command, clap::Error> {
    Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command)
}

fn refusal(line: &str) -> String {
    let error = parse(line).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{line}");
    error.to_string()
}

#[test]
fn the_arguments_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn serve_takes_its_flags_as_overrides() {
    let line = "plimsoll serve --config p.toml --models m --listen 0.0.0.0:1 --ceiling 2GiB --device cpu";
    let Ok(Command::Serve(start)) = parse(line) else { panic!("no serve") };
    assert_eq!(start.place.config, Some(PathBuf::from("p.toml")));
    let flags = Flags {
        models: Some(PathBuf::from("m")),
        listen: Some(SocketAddr::from(([0, 0, 0, 0], 1))),
        ceiling: Some(ByteSize::gib(2)),
        device: Some(Kind::Cpu),
    };
    assert_eq!(start.flags(), flags);
}

#[test]
fn serve_without_flags_overrides_nothing() {
    let Ok(Command::Serve(start)) = parse("plimsoll serve") else { panic!("no serve") };
    assert_eq!(start.flags(), Flags::default());
}

#[test]
fn check_takes_the_flags_of_serve_and_json() {
    let Ok(Command::Check(check)) = parse("plimsoll check --ceiling 1GiB --json") else { panic!("no check") };
    assert!(check.json);
    assert_eq!(check.start.ceiling, Some(ByteSize::gib(1)));
}

#[test]
fn infer_takes_an_input_for_each_name() {
    let Ok(Command::Infer(infer)) = parse("plimsoll infer digits --input a=x.npy --input b=d/y.npy") else {
        panic!("no infer")
    };
    assert_eq!(infer.model, ModelRef::Name("digits".to_owned()));
    let input = |name: &str, file: &str| InputFile { name: name.to_owned(), file: PathBuf::from(file) };
    assert_eq!(infer.inputs, [input("a", "x.npy"), input("b", "d/y.npy")]);
}

#[test]
fn bench_measures_the_plan_on_one_lane_for_five_seconds_by_default() {
    let Ok(Command::Bench(bench)) = parse("plimsoll bench digits") else { panic!("no bench") };
    assert_eq!((bench.batch, bench.lanes, bench.threads, bench.reference), (None, 1, None, false));
    assert_eq!((bench.seconds, bench.precision), (Duration::from_secs(5), None));
}

#[test]
fn bench_takes_shapes_and_a_precision() {
    let line = "plimsoll bench m.onnx --shape a=1x3x8 --shape n=2 --precision fp16 --seconds 0.5";
    let Ok(Command::Bench(bench)) = parse(line) else { panic!("no bench") };
    let shape = |name: &str, shape: &[usize]| InputShape { name: name.to_owned(), shape: shape.to_vec() };
    assert_eq!(bench.shapes, [shape("a", &[1, 3, 8]), shape("n", &[2])]);
    assert_eq!((bench.precision, bench.seconds), (Some(Precision::Fp16), Duration::from_millis(500)));
}

#[test]
fn a_graph_is_dumped_as_text_only() {
    assert!(matches!(parse("plimsoll plan digits --dump"), Ok(Command::Plan(plan)) if plan.dump));
    assert!(refusal("plimsoll plan digits --dump --json").contains("cannot be used with"));
}

#[test]
fn selftest_takes_models_or_a_folder_of_cases() {
    let Ok(Command::Selftest(all)) = parse("plimsoll selftest") else { panic!("no selftest") };
    assert!(all.names.is_empty() && all.cases.is_none());
    let Ok(Command::Selftest(some)) = parse("plimsoll selftest a b.onnx --threads 2") else {
        panic!("no selftest")
    };
    assert_eq!((some.names.len(), some.threads), (2, Some(2)));
    assert!(refusal("plimsoll selftest a --cases d").contains("cannot be used with"));
}

#[test]
fn a_model_is_a_file_when_it_looks_like_a_path() {
    let model = |text: &str| text.parse::<ModelRef>().unwrap();
    assert_eq!(model("digits"), ModelRef::Name("digits".to_owned()));
    assert_eq!(model("yolo.v8"), ModelRef::Name("yolo.v8".to_owned()));
    assert_eq!(model("yolo.onnx"), ModelRef::File(PathBuf::from("yolo.onnx")));
    assert_eq!(model("./digits"), ModelRef::File(PathBuf::from("./digits")));
}

#[test]
fn a_wrong_argument_is_told_what_was_expected_and_what_came() {
    for (line, text) in [
        (
            "plimsoll bench m --shape images",
            "expected NAME=AxBxC such as images=1x3x224x224, got `images`: no `=`",
        ),
        ("plimsoll bench m --shape =1x3", "got `=1x3`: no name before `=`"),
        ("plimsoll bench m --shape a=1x0", "got `a=1x0`: `0` is no whole number from 1"),
        ("plimsoll bench m --shape a=1,3", "got `a=1,3`: `1,3` is no whole number from 1"),
        ("plimsoll bench m --shape a=", "got `a=`: `` is no whole number from 1"),
        ("plimsoll bench m --batch 0", "expected a whole number from 1 to 65536, got `0`"),
        ("plimsoll bench m --seconds nan", "expected a number of seconds from 0.01 to 86400, got `nan`"),
        ("plimsoll infer m --input x.npy", "expected NAME=FILE.npy such as image=seven.npy, got `x.npy`"),
        ("plimsoll serve --ceiling 2GX", "expected a size such as 2GiB, got `2GX`"),
        ("plimsoll serve --listen 80", "expected an address with a port such as 127.0.0.1:8000, got `80`"),
        ("plimsoll serve --device gpu", "[possible values: auto, cpu, cuda]"),
    ] {
        let refusal = refusal(line);
        assert!(refusal.contains(text), "{line}: {refusal}");
    }
}

#[test]
fn a_name_may_have_an_equals_sign_before_a_shape() {
    let shape = "a=b=2x3".parse::<InputShape>().unwrap();
    assert_eq!((shape.name.as_str(), shape.shape.as_slice()), ("a=b", &[2, 3][..]));
}

#[test]
fn no_command_shows_the_help() {
    let error = parse("plimsoll").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
}
