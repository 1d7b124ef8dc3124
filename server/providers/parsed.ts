/**
 * `providers/parsed.jsonl`: the files of the catalogue as JSON, one a line, so that a start need not read a hundred
 * YAML files. Each line counts only while the hash of its file is the one it was made from; a file that was changed or
 * added is read as YAML. Nothing is trusted but the reading of YAML: the schema judges all definitions at each start.
 */
import { hash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';

const FILE = 'parsed.jsonl';
type Content = Record<string, unknown>;

/** What a file of this text holds, where the folder's `parsed.jsonl` knows that text. */
export function readParsed(directory: string): (file: string, text: string) => Content | undefined {
  const known = new Map<string, Content>();
  let lines: string;
  try {
    lines = readFileSync(join(directory, FILE), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return () => undefined;
    throw error;
  }
  for (const line of lines.split('\n')) {
    const entry = parsedLine(line);
    if (entry !== undefined) known.set(`${entry[0]} ${entry[1]}`, entry[2]);
  }
  return (file, text) => known.get(`${file} ${hash('sha256', text)}`);
}

/** The text that `parsed.jsonl` should have, by its folder's YAML files. */
export function parsedText(directory: string): string {
  const files = readdirSync(directory).filter((name) => name.endsWith('.yaml'));
  const lines = files.sort().map((file) => {
    const text = readFileSync(join(directory, file), 'utf8');
    return `${JSON.stringify([file, hash('sha256', text), parse(text)])}\n`;
  });
  return lines.join('');
}

/** Nothing for a line that cannot be read: its file is read as YAML then. */
function parsedLine(line: string): [string, string, Content] | undefined {
  try {
    const entry: unknown = JSON.parse(line);
    return Array.isArray(entry) && entry.length === 3 ? (entry as [string, string, Content]) : undefined;
  } catch {
    return undefined;
  }
}
