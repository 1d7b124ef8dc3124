// The commands of an example's README, and a terminal to type them into.

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { type Block, blocksOf } from '../docs/blocks.ts';

export type Example = 'app' | 'script';
export type Terminal = {
  /** All that was printed so far. */
  output(): string;
  /** Waits for words, and rejects where the commands end without them. */
  printed(words: RegExp, withinMs?: number): Promise<RegExpExecArray>;
  /** The exit code, once they end by themselves. */
  ended: Promise<number>;
  /** As Ctrl-C does it. */
  interrupt(): Promise<number>;
};

/** The commands and outputs of a README, block by block. */
export function readmeOf(example: Example): { commands: string[]; outputs: string[] } {
  const blocks = blocksOf(`examples/${example}/README.md`);
  const texts = (wanted: string) =>
    blocks.filter(({ language }: Block) => language === wanted).map(({ text }) => text);
  return { commands: texts('sh'), outputs: texts('') };
}

/** `child` leads a group of processes of its own. */
export function terminalOf(child: ChildProcess): Terminal {
  let output = '';
  let told = () => {};
  for (const stream of [child.stdout!, child.stderr!])
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      told();
    });
  // Behind the last of its output.
  const ended = once(child, 'close').then(([code, signal]) => (code ?? `ended by ${signal}`) as number);
  return {
    output: () => output,
    async printed(words, withinMs = 60_000) {
      const isLate = AbortSignal.timeout(withinMs);
      let isOver = false;
      const over = ended.then(() => {
        isOver = true;
      });
      for (;;) {
        const found = words.exec(output);
        if (found !== null) return found;
        if (isOver || isLate.aborted) throw new Error(`${words} was not printed:\n${output}`);
        const { promise, resolve } = Promise.withResolvers<void>();
        told = resolve;
        isLate.addEventListener('abort', () => resolve());
        await Promise.race([promise, over]);
      }
    },
    ended,
    async interrupt() {
      killTerminal(child, 'SIGINT');
      return ended;
    },
  };
}

/** All that it runs, as Ctrl-C does it. */
export function killTerminal({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  try {
    process.kill(-pid!, signal);
  } catch (error) {
    // It has ended by itself.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
