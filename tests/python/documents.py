"""What a Markdown document shows: its blocks, the commands in them, and whether an output looks as it is shown."""

import json
import pathlib
import re
import tomllib

from server import ROOT

# What a line must begin with to be a command where a block does not say that it holds some.
PROGRAMS = (
    "plimsoll", "cargo", "curl", "python", "pip", "git", "docker", "kubectl", "helm", "systemctl", "sudo",
    "tritonserver", "perf_analyzer", "docs/", "models/", "loadtest/", "tests/",
)  # fmt: skip
ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=\S* ")
NUMBER = re.compile(r"-?\d[\d.,]*(?:e-?\d+)?(?: ?(?:bytes|[KMG]iB|ms|µs|s|%)(?!\w))?")
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


class Block:
    """A fenced or indented block: language, lines, where it begins, and the prose between it and the one before."""

    def __init__(self, language, lines, line, before):
        self.language, self.lines, self.line, self.before = language, lines, line, before

    @property
    def text(self):
        return "\n".join(self.lines)

    def is_output(self):
        """Whether it shows what the block before it prints: nothing is between them, or a paragraph that ends in `:`."""
        between = self.before.strip()
        return self.language in ("text", "json") and (not between or ("\n\n" not in between and between.endswith(":")))


def blocks(document):
    """The blocks of a document in order."""
    found, prose, open_block = [], [], None
    lines = document.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        fence = re.fullmatch(r"```(\w*)", line.rstrip())
        if open_block is not None and open_block.language != "indented":
            if fence:
                open_block = None
            else:
                open_block.lines.append(line)
            continue
        if open_block is not None:
            if line.startswith("    ") or (not line and number < len(lines) and lines[number].startswith("    ")):
                open_block.lines.append(line[4:])
                continue
            open_block = None
        indented = line.startswith("    ") and line.strip() and not (prose and prose[-1].strip())
        if fence or indented:
            language, first = (fence[1], []) if fence else ("indented", [line[4:]])
            open_block = Block(language, first, number, "\n".join(prose))
            found.append(open_block)
            prose = []
        else:
            prose.append(line)
    for block in found:
        if block.language == "indented":
            block.language = "sh" if is_command(block.lines[0]) else "text"
    return found


def is_command(line):
    while match := ASSIGNMENT.match(line):
        line = line[match.end() :]
    return line.startswith(PROGRAMS)


def commands(block):
    """The commands of a block, with what a backslash or a here-document spreads over lines in one piece."""
    lines = iter(block.lines)
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        command = [line]
        while command[-1].endswith("\\") or is_open("\n".join(command)):
            command.append(next(lines))
        if here := re.search(r"<<'?(\w+)'?", command[-1]):
            while command[-1] != here[1]:
                command.append(next(lines))
        yield "\n".join(command)


def is_open(command):
    """Whether a single quote waits for its end; remarks may have some."""
    return re.sub(r"\s#.*", "", command).count("'") % 2 == 1


def wanted_code(command):
    """The exit code that a comment beside the command announces."""
    match = re.search(r"#.*\bexit code (\d+)", command.splitlines()[0])
    return int(match[1]) if match else 0


def plain(line):
    """A line without the numbers, times and widths that differ from run to run."""
    line = NUMBER.sub("#", TIMESTAMP.sub("", line))
    return " ".join(line.split())


def missing_lines(shown, printed):
    """The shown lines that were not printed, in that order, numbers aside. A line may end in `…`."""
    rest, missing = iter([plain(line) for line in printed.splitlines()]), []
    for line in map(plain, shown):
        if not line or set(line) <= {"…"}:
            continue
        begin = line.rstrip("… ") if line.endswith("…") else None
        if not any(came.startswith(begin) if begin is not None else came == line for came in rest):
            missing.append(line)
            rest = iter([plain(line) for line in printed.splitlines()])
    return missing


def shown_json(text):
    """JSON as a document shows it: `…` stands for members or elements that are left out."""
    text = re.sub(r",\s*…\s*\}", ',"…":0}', text)
    text = re.sub(r",\s*…\s*\]", ',"…"]', text)
    return json.loads(text)


def unlike(shown, came, where="$"):
    """Where an answer is not as it is shown: members, kinds and words are compared, numbers are not."""
    if isinstance(shown, dict):
        if not isinstance(came, dict):
            return f"{where}: {came!r} is no object"
        keys = [key for key in shown if key != "…"]
        more = set(came) - set(keys)
        if missing := set(keys) - set(came):
            return f"{where}: {sorted(missing)} are shown and did not come"
        if more and "…" not in shown:
            return f"{where}: {sorted(more)} came and are not shown"
        return next(filter(None, (unlike(shown[key], came[key], f"{where}.{key}") for key in keys)), None)
    if isinstance(shown, list):
        entries = [entry for entry in shown if entry != "…"]
        if not isinstance(came, list) or len(came) < len(entries) or (len(came) > len(entries) and "…" not in shown):
            return f"{where}: {came!r} is no list of {len(entries)}"
        pairs = enumerate(zip(entries, came, strict=False))
        return next(filter(None, (unlike(a, b, f"{where}[{at}]") for at, (a, b) in pairs)), None)
    if isinstance(shown, str) and isinstance(came, str):
        begin = plain(shown.rstrip("…"))
        alike = plain(came).startswith(begin) if shown.endswith("…") else plain(came) == begin
        return None if alike else f"{where}: {shown!r} is shown, {came!r} came"
    number = lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)
    if number(shown) and number(came) or shown is came:
        return None
    return f"{where}: {shown!r} is shown, {came!r} came"


def spans(document):
    """Inline code outside of blocks, with the line where it stands."""
    fenced, found = False, []
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            found += [(number, span) for span in re.findall(r"`` (.+?) ``|`([^`]+)`", line)]
    return [(number, first or second) for number, (first, second) in found]


def messages_of_the_source():
    """The source of both crates with the strings that go on over several lines in one piece."""
    files = sorted([*ROOT.glob("engine/src/**/*.rs"), *ROOT.glob("server/src/**/*.rs")])
    text = "\n".join(file.read_text() for file in files if "tests" not in file.parts and file.stem != "tests")
    return re.sub(r"\\\n\s*", "", text).replace('\\"', '"')


def keys_of_the_configuration():
    """`section.key` of every key there is."""
    text = (ROOT / "config/plimsoll.toml").read_text()
    active = re.sub(r"(?m)^#(?=[a-z_]+ = )", "", text)
    return {f"{section}.{key}" for section, keys in tomllib.loads(active).items() for key in keys}


def links(document):
    """Where links and images lead, those to other sites left out."""
    targets = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(document):
    """What can follow `#` in a link to the document, as code hosts make it of headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", document.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def documents():
    """README.md and what docs/ holds."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def name(document):
    return str(pathlib.Path(document).relative_to(ROOT))
