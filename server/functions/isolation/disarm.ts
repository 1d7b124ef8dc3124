/**
 * What the permission model leaves open, taken away before any bundle is there: signals to other processes, other
 * priorities, the ways around the module loader, and the handles of the channel.
 */
import os from 'node:os';

const ofProcess = [
  '_debugEnd',
  '_debugProcess',
  '_getActiveHandles',
  '_getActiveRequests',
  '_kill',
  '_linkedBinding',
  '_startProfilerIdleNotifier',
  '_stopProfilerIdleNotifier',
  'abort',
  'binding',
  'chdir',
  'dlopen',
  'execve',
  'initgroups',
  'kill',
  'loadEnvFile',
  'mainModule',
  'report',
  'setegid',
  'seteuid',
  'setgid',
  'setgroups',
  'setuid',
  'umask',
];

/** Once, at the start of a process that is to run customer code. Nothing of it can be undone from within. */
export function disarm(): void {
  for (const name of ofProcess) remove(process, name);
  remove(os, 'setPriority');
}

function remove(target: object, name: string): void {
  Object.defineProperty(target, name, { value: undefined, writable: false, configurable: false });
}
