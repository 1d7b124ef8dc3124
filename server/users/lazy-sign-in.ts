import type { SignIn, SignInParts } from './sign-in.ts';

/** better-auth, with 7 MB of code, is loaded by the first one who signs in: a node that only programs call never needs it. */
export function lazySignIn(parts: SignInParts): SignIn {
  let made: ReturnType<SignIn> | undefined;
  return () => {
    made ??= import('./sign-in.ts').then(({ createSignIn }) => createSignIn(parts));
    return made;
  };
}
