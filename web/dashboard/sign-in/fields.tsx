import { PasswordInput, type PasswordInputProps, TextInput, type TextInputProps } from '@mantine/core';
import { useState } from 'react';

/** The fields of the sign-in pages, named so that password managers recognize them. */
export const rules = {
  email: (value: string) => (/^\S+@\S+$/.test(value) ? null : 'Enter an e-mail address.'),
  password: (value: string) => (value.length >= 12 ? null : 'At least 12 characters'),
};

const showPassword = { 'aria-label': 'Show the password', 'aria-hidden': false };

export function Name(props: TextInputProps) {
  return <TextInput label="Name" autoComplete="name" required {...props} />;
}

export function Email(props: TextInputProps) {
  return <TextInput label="E-mail" type="email" autoComplete="username" required {...props} />;
}

export function Password(props: PasswordInputProps) {
  return (
    <PasswordInput
      label="Password"
      autoComplete="current-password"
      required
      visibilityToggleButtonProps={showPassword}
      {...props}
    />
  );
}

export function NewPassword(props: PasswordInputProps) {
  return (
    <PasswordInput
      label="Password"
      description="At least 12 characters"
      autoComplete="new-password"
      required
      visibilityToggleButtonProps={showPassword}
      {...props}
    />
  );
}

/** The token after the `#`, which browsers do not send and logs do not contain. */
export function useToken(): string {
  const [token] = useState(() => location.hash.slice(1));
  return token;
}
