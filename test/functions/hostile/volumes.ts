/** Functions that send the service as much as they can, and what becomes of each. */
import type { Hostile } from './functions.ts';
import { denseSourceMap, withSourceMap } from './load.ts';

const run = (body: string) => `exports.default = async (service, input) => { ${body} };`;
const values = (count: string, value: string) =>
  `const value = []; for (let n = 0; n < ${count}; n++) value.push(${value});`;

export const hostileVolumes: Record<string, Hostile> = {
  'sends a million values too many': {
    code: run(`${values('1.1e6', '0')} await service.call('save', value)`),
    fails: ['threw', /more than 1,000,000 values/],
  },
  'sends a million arrays in arrays': {
    code: run(`const nested = [[[[]]]]; ${values('3e5', 'nested')} await service.call('save', value)`),
    fails: ['threw', /more than 1,000,000 values/],
  },
  'sends too many values in 40 calls at once': {
    code: run(`${values('1.2e6', '0')}
      const calls = Array.from({ length: 40 }, () => service.call('save', value).catch(({ code }) => code));
      return [...new Set(await Promise.all(calls))]`),
    returns: ['invalid_body'],
  },
  'sends large calls and ends immediately': {
    code: run(`for (let n = 0; n < 3; n++) service.call('save', 'x'.repeat(4e6)); return 'over'`),
    returns: 'over',
  },
  'sends 40 calls of 1 MB at once': {
    code: run(`const text = 'x'.repeat(1e6);
      return (await Promise.all(Array.from({ length: 40 }, (_, n) => service.call('save', [n, text])))).map(({ value }) => value.args[0])
        .every((n, at) => n === at)`),
    returns: true,
  },
  'returns a million values too many': {
    code: run(`${values('1.2e6', '0')} return value`),
    fails: ['threw', /The result is refused. It has more than 1,000,000 values/],
  },
  'returns what is nested too deeply, in megabytes': {
    code: run(`let deep = ''; for (let n = 0; n < 200; n++) deep = [deep]; return ['x'.repeat(5e6), deep]`),
    fails: ['threw', /nested deeper than 128 levels/],
  },
  'throws with a payload of many values': {
    code: run(`${values('3e4', '0')} throw Object.assign(new Error('with much'), { payload: value })`),
    fails: ['threw', /with much/],
  },
  'throws with a map of megabytes': {
    code: withSourceMap(run(`throw new Error('mapped')`), denseSourceMap(6e6)),
    fails: ['threw', /mapped/],
  },
  'throws with a map that is nested without end': {
    code: withSourceMap(run(`throw new Error('mapped')`), '['.repeat(2e6)),
    fails: ['threw', /mapped/],
  },
  'throws with a map of many names': {
    code: withSourceMap(
      run(`throw new Error('mapped')`),
      `{"version":3,"mappings":"AAAA","sources":["a"],"names":[${'"",'.repeat(9e5)}""]}`,
    ),
    fails: ['threw', /mapped/],
  },
  'throws with a stack of places': {
    code: run(`throw Object.assign(new Error('here'), { stack: '    at function.js:1:40 '.repeat(700) })`),
    fails: ['threw', /here/],
  },
  'throws with a stack of lines': {
    code: run(
      `throw Object.assign(new Error('here'), { stack: '    at f (function.js:1:40)\\n'.repeat(700) })`,
    ),
    fails: ['threw', /here/],
  },
  'throws with a stack of blanks and colons': {
    code: run(
      `throw Object.assign(new Error('here'), { stack: '\\n  '.repeat(2_000) + ' at ' + '1:'.repeat(5_000) })`,
    ),
    fails: ['threw', /here/],
  },
  'sends a body by single bytes that nobody reads': {
    code: run(`async function* bytes() { for (let n = 0; n < 1e5; n++) yield 'x' }
      return (await service.call('upload', null, bytes())).value.name`),
    returns: 'upload',
  },
  'makes a call with a very long name': {
    code: run(`return (await service.call('x'.repeat(5e6))).value.name.length`),
    returns: 200,
  },
};
