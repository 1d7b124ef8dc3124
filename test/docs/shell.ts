import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** A bash that goes on from one block to the next, as the terminal of somebody who reads along. */
type Shell = {
  /** Both outputs of the commands, and what the last of them ended with. */
  run(commands: string): Promise<{ output: string; code: number }>;
  close(): Promise<void>;
};

/** A block that hangs; of one that is slow nobody waits in vain. */
const limitMs = 90_000;

export function openShell({ cwd, env }: { cwd: string; env: NodeJS.ProcessEnv }): Shell {
  const bash = spawn('bash', ['--noprofile', '--norc'], { cwd, env, stdio: ['pipe', 'pipe', 'pipe'] });
  const closed = once(bash, 'close');
  let heard = '';
  let told = () => {};
  for (const stream of [bash.stdout, bash.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      heard += text;
      told();
    });
  }
  bash.stdout.on('close', () => told());
  let count = 0;
  return {
    async run(commands) {
      count += 1;
      const end = new RegExp(`\\n?\u001e${count} (\\d+)\u001e`);
      heard = '';
      const isLate = AbortSignal.timeout(limitMs);
      bash.stdin.write(`${commands.trimEnd()}\nprintf '\\n\\036%s %s\\036' ${count} $?\n`);
      for (;;) {
        const found = end.exec(heard);
        if (found !== null) return { output: heard.replace(end, ''), code: Number(found[1]) };
        if (bash.exitCode !== null) return { output: heard, code: bash.exitCode };
        await new Promise<void>((resolve, reject) => {
          told = resolve;
          isLate.addEventListener('abort', () => reject(new Error(`no end of:\n${commands}\n${heard}`)));
        });
      }
    },
    async close() {
      bash.kill('SIGKILL');
      await closed;
    },
  };
}
