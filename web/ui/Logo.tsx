import { Avatar } from '@mantine/core';

/** A logo on white, or initials without one. */
export function Logo({ src, name, size = 36 }: { src?: string | undefined; name: string; size?: number }) {
  return (
    <Avatar
      src={src ?? null}
      name={name}
      alt=""
      color="initials"
      radius="md"
      size={size}
      className="logo"
      // The catalogue has hundreds: those out of sight are not fetched.
      imageProps={{ loading: 'lazy' }}
      aria-hidden
    />
  );
}
