import { readFile } from 'node:fs/promises';

/**
 * Reads a secret of a command: from a file, which may be `/dev/stdin` or `/dev/fd/3`, else from a setting, else from the
 * terminal, without an echo. Never from an argument, which every account of the machine can read. Throws if none of
 * these gives a secret.
 */
export async function readSecret({
  file,
  setting,
  question,
  advice,
}: {
  file: string | undefined;
  setting: string | undefined;
  question: string;
  /** How it may be given. */
  advice: string;
}): Promise<string> {
  if (file !== undefined) {
    const text = (await readFile(file, 'utf8')).replace(/\r?\n$/, '');
    if (text === '') throw new Error(`${file} is empty.`);
    return text;
  }
  if (setting !== undefined) return setting;
  if (!process.stdin.isTTY) throw new Error(advice);
  const typed = await ask(question);
  if (typed === '') throw new Error(advice);
  return typed;
}

/** Until the line's end; Ctrl-C and Ctrl-D give up. */
async function ask(question: string): Promise<string> {
  const { stdin, stderr } = process;
  stderr.write(`${question} `);
  stdin.setRawMode(true);
  stdin.setEncoding('utf8');
  let typed = '';
  try {
    for await (const chunk of stdin) {
      for (const sign of String(chunk)) {
        if (sign === '\r' || sign === '\n') return typed;
        if (sign === '\u0003' || sign === '\u0004') throw new Error('given up');
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
