import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** A bash that keeps its state from one block to the next. */
type Shell = {
  /** Both outputs of the commands, and the exit code of the last. */
  run(commands: string): Promise<{ output: string; code: number }>;
  close(): Promise<void>;
};

/** The time limit of a block. */
const limitMs = 90_000;

export function openShell({ cwd, env }: { cwd: string; env: NodeJS.ProcessEnv }): Shell {
  const bash = spawn('bash', ['--noprofile', '--norc'], { cwd, env, stdio: ['pipe', 'pipe', 'pipe'] });
  const closed = once(bash, 'close');
  let received = '';
  let notify = () => {};
  for (const stream of [bash.stdout, bash.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      received += text;
      notify();
    });
  }
  bash.stdout.on('close', () => notify());
  let count = 0;
  return {
    async run(commands) {
      count += 1;
      const end = new RegExp(`\\n?\u001e${count} (\\d+)\u001e`);
      received = '';
      const isLate = AbortSignal.timeout(limitMs);
      bash.stdin.write(`${commands.trimEnd()}\nprintf '\\n\\036%s %s\\036' ${count} $?\n`);
      for (;;) {
        const found = end.exec(received);
        if (found !== null) return { output: received.replace(end, ''), code: Number(found[1]) };
        if (bash.exitCode !== null) return { output: received, code: bash.exitCode };
        await new Promise<void>((resolve, reject) => {
          notify = resolve;
          isLate.addEventListener('abort', () => reject(new Error(`no end of:\n${commands}\n${received}`)));
        });
      }
    },
    async close() {
      bash.kill('SIGKILL');
      await closed;
    },
  };
}
