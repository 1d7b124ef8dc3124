import { readFile } from 'node:fs/promises';

/**
 * A secret that a command is given for itself: out of a file, which may be `/dev/stdin` or `/dev/fd/3`, else a setting, else
 * from whoever sits at the terminal, unseen. Never an argument, which every account of the machine can read. Throws where
 * there is none of these.
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
