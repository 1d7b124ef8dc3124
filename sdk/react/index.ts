export { type UseConnect, type UseConnectOptions, useConnect } from './use-connect.ts';
