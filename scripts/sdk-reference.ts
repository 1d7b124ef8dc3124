/** Writes docs/sdk-reference.md out of the client's declarations: `node scripts/sdk-reference.ts`. A test compares it. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const root = join(import.meta.dirname, '..');
const run = promisify(execFile);

/** What a program imports from where, and which folder says what there is. */
const entries = [
  ['trellis-client', 'client'],
  ['trellis-client/connect', 'connect'],
  ['trellis-client/react', 'react'],
] as const;

/** Described elsewhere: too long to read here. */
const elsewhere: Record<string, string> = {
  ErrorCode: 'The codes of [errors.md](errors.md).',
  EventData: 'By type, what `data` of an event holds: [events.md](events.md#types).',
  Routes:
    'Every route of the interface, by its name: what it takes (`path`, `query`, `headers`, `body`) and what it answers, as `/openapi.json` says.',
};

/** A statement of a declaration file, with what is written before it. */
type Declared = { name: string; doc: string; text: string };

/** Generates the page. Compiles the client, which takes some seconds. */
export async function sdkReference(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'trellis-reference-'));
  try {
    const compiler = join(root, 'node_modules/typescript/bin/tsc');
    const args = [compiler, '-p', 'tsconfig.client.json', '--emitDeclarationOnly', '--outDir', directory];
    await run(process.execPath, args, { cwd: root });
    const parts: string[] = [];
    for (const [name, folder] of entries)
      parts.push(`## ${name}`, ...(await describeEntry(directory, folder)));
    return `${[intro, ...parts].join('\n\n')}\n`;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

const intro = `# Reference of trellis-client

<!-- Written by scripts/sdk-reference.ts out of the declarations in sdk/. -->

What each part promises; [sdk.md](sdk.md) leads through it. Bodies and answers have the names that they have over the wire,
and options of the client alone are in camel case.`;

/** All that an entry exports: values first, then types, each in the order of the file that it is from. */
async function describeEntry(directory: string, folder: string): Promise<string[]> {
  const index = await readFile(join(directory, folder, 'index.d.ts'), 'utf8');
  const found: Declared[] = [];
  for (const [, isType, list = '', file = ''] of index.matchAll(
    /export (type )?\{([^}]+)\} from '\.\/([a-z-]+)\.[jt]s'/g,
  )) {
    const declared = statementsOf(await readFile(join(directory, folder, `${file}.d.ts`), 'utf8'));
    for (const word of list
      .split(',')
      .map((one) => one.trim())
      .filter((one) => one !== '')) {
      const name = word.replace(/^type /, '');
      // Overloads have a statement each.
      const all = declared.filter((one) => one.name === name);
      if (all.length === 0) throw new Error(`${folder}/${file} declares no ${name}`);
      const [first] = all;
      const merged = { name, doc: first!.doc, text: all.map(({ text }) => text).join('\n') };
      found.push(merged);
      if (isType === undefined && word === name) values.add(merged);
    }
  }
  const order = (one: Declared) => (values.has(one) ? 0 : one.text.includes(' class ') ? 1 : 2);
  return found.toSorted((one, other) => order(one) - order(other)).flatMap(describe);
}

const values = new WeakSet<Declared>();

function describe({ name, doc, text }: Declared): string[] {
  const said = [`### ${name}`, ...(doc === '' ? [] : [doc])];
  return elsewhere[name] === undefined ? [...said, fenced(text)] : [said[0]!, elsewhere[name]];
}

/** With the comments of its parts, but for the marks of examples in these, which would end the block. */
function fenced(text: string): string {
  const shown = text
    .replace(/^export declare class/, 'declare class')
    .replace(/^export (declare )?/gm, '')
    .replace(/^ *(#private;|\* ```.*)\n/gm, '')
    .replaceAll('    ', '  ');
  return `\`\`\`ts\n${shown}\n\`\`\``;
}

/** The statements of a declaration file as the compiler writes it, each with the comment before it. */
function statementsOf(text: string): Declared[] {
  const found: Declared[] = [];
  let comment: string[] = [];
  let lines: string[] = [];
  let isComment = false;
  for (const line of text.split('\n')) {
    if (lines.length === 0 && line.startsWith('/**')) {
      comment = [];
      isComment = true;
    }
    if (isComment) {
      comment.push(line);
      isComment = !line.endsWith('*/');
      continue;
    }
    if (line === '') continue;
    lines.push(line);
    if (!isWhole(lines)) continue;
    const statement = lines.join('\n');
    const name = nameOf(statement);
    if (name !== undefined) found.push({ name, doc: docOf(comment), text: statement });
    comment = [];
    lines = [];
  }
  return found;
}

/** Whether all that was opened is closed, and the last line ends a statement. */
function isWhole(lines: readonly string[]): boolean {
  // What stands in comments and in text does not count.
  const bare = lines
    .join('\n')
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/'[^']*'|"[^"]*"|`[^`]*`/g, '')
    .replaceAll('=>', '');
  const depth = (open: RegExp, close: RegExp) =>
    (bare.match(open)?.length ?? 0) - (bare.match(close)?.length ?? 0);
  const isBalanced = depth(/[{([]/g, /[})\]]/g) === 0;
  return isBalanced && /[;}]$/.test(lines.at(-1) ?? '') && !/\/\*(?![\s\S]*\*\/)/.test(lines.join('\n'));
}

function nameOf(statement: string): string | undefined {
  const [, word] =
    /^(?:export )?(?:declare )?(?:class|function|type|interface|const) (\w+)/.exec(statement) ?? [];
  return word;
}

/** The words of a comment, as Markdown. */
function docOf(comment: readonly string[]): string {
  return comment
    .join('\n')
    .replace(/^\/\*\*\s?|\s*\*\/$/g, '')
    .replace(/^\s*\* ?/gm, '')
    .trim();
}

if (import.meta.main) await writeFile(join(root, 'docs/sdk-reference.md'), await sdkReference());
