// The container's health check: ends with 0 where the service that listens here answers. Plain JavaScript, since it starts
// every few seconds and beside the service.
import { get } from 'node:http';

const { PORT = '3003' } = process.env;
get({ host: '127.0.0.1', port: Number(PORT), path: '/health', timeout: 4000 }, (answer) => {
  process.exit(answer.statusCode === 200 ? 0 : 1);
})
  .on('timeout', () => process.exit(1))
  .on('error', () => process.exit(1));
