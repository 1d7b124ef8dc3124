import assert from 'node:assert/strict';
import { test } from 'node:test';
import { redactedTarget } from './writer.ts';

const cases: [sent: string, kept: string][] = [
  ['/v4/spreadsheets/a', '/v4/spreadsheets/a'],
  ['/a?', '/a?'],
  ['/a?fields=id&q=x', '/a?fields=id&q=x'],
  ['/a?access_token=s3cret&fields=id', '/a?access_token=***&fields=id'],
  ['/a?fields=id&key=s3cret', '/a?fields=id&key=***'],
  ['/a?apiKey=s3cret', '/a?apiKey=***'],
  ['/a?APIKEY=s3cret', '/a?APIKEY=***'],
  ['/a?api-key=s3cret', '/a?api-key=***'],
  ['/a?X-Amz-Signature=s3cret', '/a?X-Amz-Signature=***'],
  ['/a?sig=s3cret==&x=1', '/a?sig=***&x=1'],
  ['/a?accesstoken=s3cret', '/a?accesstoken=***'],
  ['/a?%61ccess_token=s3cret', '/a?%61ccess_token=***'],
  ['/a?client%5Fsecret=s3cret', '/a?client%5Fsecret=***'],
  ['/a?user[password]=s3cret', '/a?user[password]=***'],
  ['/a?x=1;token=s3cret', '/a?x=1;token=***'],
  ['/a?upload_id=s3cret', '/a?upload_id=***'],
  ['/a?$httpHeaders=authorization:s3cret', '/a?$httpHeaders=***'],
  ['/a?code=s3cret', '/a?code=***'],
  ['/a?keyword=open&monkey=1&authority=x&state=open', '/a?keyword=open&monkey=1&authority=x&state=open'],
  ['/a?%=1&%zz_token=s3cret', '/a?%=1&%zz_token=***'],
  ['/a?x=?token=s3cret', '/a?x=***'],
  ['/a?callback=http%3A%2F%2Fb%2F%3Fx%3D1%26access_token%3Ds3cret&x=1', '/a?callback=***&x=1'],
  ['/a?callback=https%3A%2F%2Fb%2F%23id_token%3Ds3cret', '/a?callback=***'],
  ['/a?callback=https%3A%2F%2Fb%2F%3Fpage%3D2', '/a?callback=https%3A%2F%2Fb%2F%3Fpage%3D2'],
  ['/a?q=a%3Db&r=c==', '/a?q=a%3Db&r=c=='],
  ['/a;token=s3cret/b;v=1;jsessionid=s3cret?x=1', '/a;token=***/b;v=1;jsessionid=***?x=1'],
  ['/bot123:s3cret-_/getMe', '/bot***/getMe'],
  ['/https://api.example.com/bot123%3As3cret/getMe', '/https://api.example.com/bot***/getMe'],
  ['/robots/bot1/x', '/robots/bot1/x'],
  ...[
    'secretkey',
    'authkey',
    'appkey',
    'subscriptionkey',
    'AccountKey',
    'sharedkey',
    'sas',
    'passphrase',
    'hmac',
    'mac',
  ].map((name): [string, string] => [`/a?${name}=s3cret`, `/a?${name}=***`]),
  ['/a?animal=1&monkey=1&turkey=1&macro=1&sass=1', '/a?animal=1&monkey=1&turkey=1&macro=1&sass=1'],
];

for (const [sent, kept] of cases)
  test(`${sent} is kept as ${kept}`, () => assert.equal(redactedTarget(sent), kept));

test('no more than 2048 characters are kept, and none of a secret at the end', () => {
  assert.equal(redactedTarget(`/${'a'.repeat(5000)}`).length, 2048);
  const kept = redactedTarget(`/${'a'.repeat(2000)}?token=${'s3cret'.repeat(1000)}`);
  assert.ok(kept.endsWith('?token=***'), kept.slice(-20));
});

test('a long query takes no longer than its length', () => {
  assert.equal(redactedTarget(`/a?${'='.repeat(100_000)}`).length, 2048);
  assert.equal(redactedTarget(`/a?${'%41'.repeat(100_000)}`).length, 2048);
  for (const part of [';a=', '?=&', '=%3F', '%3Fkey%3D', ';'])
    assert.ok(redactedTarget(`/a${part.repeat(30_000)}?a=${part.repeat(30_000)}`).length <= 2048);
});
