/** Input and output of commands: JSON, names in lines, progress, and secrets that are typed. */
import { readFile } from 'node:fs/promises';
import type { WriteStream } from 'node:tty';

export type JsonOption = { json?: true | undefined };

/** The output of `--json`. */
export function printJson(value: unknown): void {
  console.log(JSON.stringify(value, undefined, 2));
}

/** Prints a message to standard error, apart from the result of a command. */
export const log = (message: string) => console.error(message);

/** A name from outside, without characters that end the line or move the cursor. */
export function oneLine(name: string): string {
  return name.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, ' ');
}

/** The shortest time between two plain lines. */
const lineMs = 2_000;

type Progress = { show(text: string): void; end(): void };

/** On a terminal one line that changes; elsewhere plain lines, the first at once. */
export function createProgress(
  out: Pick<WriteStream, 'write'> & { isTTY?: boolean },
  now: () => number = () => performance.now(),
): Progress {
  let nextAt = 0;
  let isOpen = false;
  return {
    show(text) {
      if (out.isTTY) {
        out.write(`\r\x1b[K${text}`);
        isOpen = true;
      } else if (now() >= nextAt) {
        out.write(`${text}\n`);
        nextAt = now() + lineMs;
      }
    },
    end() {
      if (isOpen) out.write('\n');
      isOpen = false;
    },
  };
}

/**
 * Reads a secret of a command: from a file, which may be `/dev/stdin` or `/dev/fd/3`, else from a setting, else from the
 * terminal, without an echo. Never from an argument, which every account of the machine can read. Throws if none of
 * these gives a secret.
 */
export async function readSecret(given: {
  file: string | undefined;
  setting: string | undefined;
  question: string;
  /** How to give the secret; the message of the error. */
  advice: string;
}): Promise<string> {
  const { file, setting, question, advice } = given;
  if (file !== undefined) {
    const text = (await readFile(file, 'utf8')).replace(/\r?\n$/, '');
    if (text === '') throw new Error(`${file} is empty.`);
    return text;
  }
  if (setting !== undefined) return setting;
  if (!process.stdin.isTTY) throw new Error(advice);
  const typed = await readTyped(question);
  if (typed === '') throw new Error(advice);
  return typed;
}

/** All of standard input, which must not be a terminal: what is typed would be shown. */
export async function readStandardInput(): Promise<string> {
  if (process.stdin.isTTY) throw new Error('Give the input on standard input, as by "< FILE".');
  let read = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) read += chunk;
  return read;
}

/** Reads to the end of the line; Ctrl-C and Ctrl-D cancel. */
async function readTyped(question: string): Promise<string> {
  const { stdin, stderr } = process;
  stderr.write(`${question} `);
  stdin.setRawMode(true);
  stdin.setEncoding('utf8');
  let typed = '';
  try {
    for await (const chunk of stdin) {
      for (const sign of String(chunk)) {
        if (sign === '\r' || sign === '\n') return typed;
        if (sign === '\u0003' || sign === '\u0004') throw new Error('cancelled');
        if (sign === '\u007f' || sign === '\b') typed = [...typed].slice(0, -1).join('');
        else typed += sign;
      }
    }
    return typed;
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
    stderr.write('\n');
  }
}
